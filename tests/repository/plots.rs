//! The pictures in docs/semantics.md are up to date.

#[path = "../../examples/plot_algorithms/draw.rs"]
mod draw;
#[path = "../../examples/plot_algorithms/simulate.rs"]
mod simulate;

use std::fs;
use std::path::Path;

#[test]
fn pictures_are_up_to_date() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let document = fs::read_to_string(docs.join("semantics.md")).unwrap();
    let runs = simulate::runs().unwrap();
    for run in &runs {
        let name = format!("img/{}.svg", run.name);
        let committed = fs::read_to_string(docs.join(&name)).unwrap();
        let same = committed == draw::svg(run);
        assert!(same, "docs/{name} is out of date: run `cargo run --example plot_algorithms`");
        assert!(document.contains(&format!("]({name})")), "docs/semantics.md lacks {name}");
    }
    let is_plot = |entry: &fs::DirEntry| entry.path().extension().is_some_and(|it| it == "svg");
    let images = fs::read_dir(docs.join("img")).unwrap().map(Result::unwrap);
    assert_eq!(images.filter(is_plot).count(), runs.len());
}
