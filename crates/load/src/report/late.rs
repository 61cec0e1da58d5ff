//! What kept a generator from its schedule, as far as the kernel's counts tell, and what to do about it.

use super::Run;
use crate::units::{show_count, show_nanos};

/// What is a share of the time that matters, where one request in a hundred may be late.
const SHARE: f64 = 0.01;

/// The cause in words, and what helps.
pub(super) fn cause(run: &Run) -> String {
    let (slip, generator) = (&run.slip, &run.generator);
    let never = slip.due.saturating_sub(run.total.slip.count());
    if never > 0 && never * 2 >= slip.late {
        return format!(
            "no connection was free for {} of them: more connections (-c), or a lower rate",
            show_count(never)
        );
    }
    let seconds = if generator.seconds > 0.0 { generator.seconds } else { run.seconds };
    let time = |seconds: f64| show_nanos((seconds * 1e9) as u64);
    let processors = generator.processors.max(1);
    let all = seconds * processors as f64;
    let (waited, stolen) = (generator.waited_seconds, generator.stolen_seconds);
    let had = match processors {
        1 => "1 processor".to_owned(),
        n => format!("{n} processors"),
    };
    let mut why = Vec::new();
    if stolen > SHARE * all {
        why.push(format!(
            "the host of this virtual machine took {:.0} % of its processors' time (steal): a quieter host helps, or processors of its own",
            100.0 * stolen / all
        ));
    }
    if waited > SHARE * seconds {
        let busy = (100.0 * (1.0 - generator.idle_seconds / all)).clamp(0.0, 100.0);
        why.push(format!(
            "its threads were ready and waited {} of {} for a processor, of {had}, {busy:.0} % busy: run the server or the generator on \
             another machine, or on processors of their own (taskset), or the generator first (chrt -f 10)",
            time(waited),
            time(seconds)
        ));
    }
    let worked = generator.cpu_user_seconds + generator.cpu_system_seconds;
    if why.is_empty() && worked > 0.9 * seconds * run.setup.workers.max(1) as f64 {
        why.push("its workers were busy all the time: more --workers, or a lower rate".to_owned());
    }
    if why.is_empty() {
        why.push(
            "neither other threads nor a host kept it waiting, so its processors were slow to wake: --idle spin keeps them awake".to_owned(),
        );
    }
    why.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::SlipVerdict;
    use crate::report::usage::Generator;
    use crate::report::{About, join};

    /// A run of ten seconds on two processors, with a worker, that sent 900 of 1,000 in time.
    fn run(generator: &Generator) -> Run {
        let mut run = join(About::default(), Vec::new());
        (0..1000).for_each(|_| run.total.slip.record(1000));
        run.slip = SlipVerdict { due: 1000, late: 100, judged: true, ..SlipVerdict::default() };
        run.setup.workers = 1;
        run.generator = Generator { seconds: 10.0, processors: 2, ..generator.clone() };
        run
    }

    #[test]
    fn what_kept_it_waiting_is_said_with_what_helps() {
        let idle = Generator { idle_seconds: 18.0, cpu_user_seconds: 1.0, ..Generator::default() };
        for (generator, words, others) in [
            (idle.clone(), "--idle spin", "waited"),
            (
                Generator { waited_seconds: 2.0, idle_seconds: 1.0, ..idle.clone() },
                "waited 2.00 s of 10.0 s for a processor, of 2 processors, 95 % busy",
                "steal",
            ),
            (
                Generator { stolen_seconds: 1.0, ..idle.clone() },
                "took 5 % of its processors' time (steal)",
                "spin",
            ),
            (Generator { cpu_user_seconds: 9.5, ..idle.clone() }, "more --workers", "spin"),
        ] {
            let said = cause(&run(&generator));
            assert!(said.contains(words) && !said.contains(others), "{words}: {said}");
        }
        let mut few = run(&idle);
        few.slip.due = 1080;
        assert!(cause(&few).contains("no connection was free for 80 of them"), "{}", cause(&few));
    }
}
