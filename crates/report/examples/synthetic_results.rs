//! Writes the made-up results documents of `testdata/results` and, beside each, its page:
//! `cargo run -p report --example synthetic_results -- testdata/results [PAGES]`.

#[path = "../tests/page/synthetic.rs"]
mod synthetic;

use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let folder = arguments.next().unwrap_or_else(|| PathBuf::from("testdata/results"));
    let pages = arguments.next();
    let documents = [
        ("synthetic-path", synthetic::path()),
        ("synthetic-unseen", synthetic::unseen()),
        ("synthetic-reproduction", synthetic::reproduction()),
        ("synthetic-placement", synthetic::placement()),
    ];
    for (name, results) in documents {
        let json = serde_json::to_string(&results).map_err(std::io::Error::other)?;
        std::fs::write(folder.join(format!("{name}.json")), json + "\n")?;
        if let Some(pages) = &pages {
            let page = report::render(&results, &report::RenderOptions::default());
            std::fs::write(pages.join(format!("{name}.html")), page)?;
        }
    }
    Ok(())
}
