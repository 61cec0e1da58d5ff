//! Kernel sockets behind a card with interrupts, which wait while the worker is busy (`serve --suspend-irqs`, Linux 6.13): nothing is
//! left lying, and how many interrupts there are is printed.

use super::{CARDS, ends};
use crate::guest::Guest;

const REQUESTS: u32 = 3000;

#[test]
fn requests_are_answered_while_interrupts_wait() {
    let Some(mut guest) = Guest::newer() else { return };
    let [card, _] = CARDS;
    card.tidy(&mut guest);
    guest.must("ethtool -L igb combined 1; ip addr add 10.9.4.2/24 dev igb; settle igb");
    let count = |guest: &mut Guest| -> u64 {
        let all = guest.must("grep igb /proc/interrupts");
        let numbers = all.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
        numbers.sum()
    };
    let mut interrupts = Vec::new();
    for options in ["", "--suspend-irqs", "--suspend-irqs --busy-poll 100us"] {
        let serve = "serve http --link kernel:igb --port 8080 --workers 1 --steer none --no-pin --json";
        let done = guest.start(&format!("{serve} {options}"));
        assert_eq!(done.code, 0, "{}", done.said);
        let before = count(&mut guest);
        let binary = std::env::var("FLOWLANE_GUEST_BINARY").unwrap();
        let load = format!(
            "load http http://10.9.4.2:8080/size/100 -c 16 -n {REQUESTS} -d 120s --timeout 60s --workers 1 --no-pin --json"
        );
        let output = std::process::Command::new(binary).args(load.split(' ')).output().unwrap();
        let run: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(run["total"]["counts"]["answered"], REQUESTS, "{}", run["total"]["counts"]);
        interrupts.push(count(&mut guest) - before);
        ends(&mut guest);
    }
    println!(
        "interrupts of {REQUESTS} requests: {interrupts:?} (as it comes, suspended, suspended and polled)"
    );
    guest.run("ip -4 addr flush dev igb; ethtool -L igb combined 4");
}
