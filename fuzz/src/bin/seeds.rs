//! Writes each target's seeds as files: `seeds DIR` makes `DIR/TARGET/seed-NNN`.

use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let Some(dir) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: seeds DIR");
        std::process::exit(2);
    };
    for (name, _) in flowlane_fuzz::TARGETS {
        let dir = dir.join(name);
        std::fs::create_dir_all(&dir)?;
        for (i, bytes) in flowlane_fuzz::seeds::inputs(name).iter().enumerate() {
            std::fs::write(dir.join(format!("seed-{i:03}")), bytes)?;
        }
    }
    Ok(())
}
