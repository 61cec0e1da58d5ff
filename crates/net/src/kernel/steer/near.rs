//! The worker nearest to each processor: its own, else that of a thread of the same core, else one of the same package, else any.

use std::path::Path;

/// Processors that are looked at.
const MOST: usize = 1024;

/// Of each processor, the nearest worker, where worker `i` is bound to `cpus[i]`.
pub(super) fn workers(cpus: &[usize]) -> Vec<u16> {
    nearest(Path::new("/sys/devices/system/cpu"), cpus)
}

fn nearest(root: &Path, cpus: &[usize]) -> Vec<u16> {
    let place = |cpu: usize| {
        let of = |file: &str| {
            let path = root.join(format!("cpu{cpu}/topology/{file}"));
            std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
        };
        (of("physical_package_id"), of("core_id"))
    };
    let there: Vec<_> = cpus.iter().map(|cpu| (*cpu, place(*cpu))).collect();
    let last = (0..MOST).rev().find(|cpu| root.join(format!("cpu{cpu}")).exists()).unwrap_or(0);
    let last = last.max(cpus.iter().copied().max().unwrap_or(0)).min(MOST);
    (0..=last)
        .map(|cpu| {
            let here = place(cpu);
            let distance = |(other, of): &(usize, (Option<String>, Option<String>))| match of {
                _ if *other == cpu => 0,
                of if of.0.is_some() && *of == here => 1,
                of if of.0.is_some() && of.0 == here.0 => 2,
                _ => 3,
            };
            let least = there.iter().map(distance).min().unwrap_or(3);
            let candidates: Vec<usize> = (0..there.len()).filter(|w| distance(&there[*w]) == least).collect();
            // Processors without workers are spread.
            candidates.get(cpu % candidates.len().max(1)).map_or(0, |worker| *worker as u16)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_worker_gets_a_processor() {
        let root = std::env::temp_dir().join(format!("flowlane-near-{}", std::process::id()));
        // Two packages of two cores of two threads: 0 and 4 are threads of one core.
        for cpu in 0..8usize {
            let path = root.join(format!("cpu{cpu}/topology"));
            std::fs::create_dir_all(&path).unwrap();
            std::fs::write(path.join("physical_package_id"), format!("{}\n", cpu % 4 / 2)).unwrap();
            std::fs::write(path.join("core_id"), format!("{}\n", cpu % 2)).unwrap();
        }
        let found = (nearest(&root, &[0, 1, 2]), nearest(&root, &[5]));
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(found.0, [0, 1, 2, 2, 0, 1, 2, 2]);
        assert_eq!(found.1, [0; 8]);
        assert_eq!(nearest(Path::new("/nowhere"), &[1, 0]), [1, 0]);
    }
}
