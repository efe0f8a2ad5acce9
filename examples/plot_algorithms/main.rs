//! Draws which requests of the same bursty traffic each algorithm admits: docs/img/<algorithm>.svg.

mod draw;
mod simulate;

use std::path::Path;

fn main() -> anyhow::Result<()> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/img");
    std::fs::create_dir_all(&directory)?;
    for run in simulate::runs()? {
        let name = format!("{}.svg", run.name);
        std::fs::write(directory.join(&name), draw::svg(&run))?;
        println!("docs/img/{name}: admitted {} of {}", run.admitted().count(), run.asked.len());
    }
    Ok(())
}
