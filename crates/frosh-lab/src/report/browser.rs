//! The page in a real browser, where one is installed.

use super::*;
use crate::sample;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    std::env::split_paths(&path).flat_map(|dir| names.map(|n| dir.join(n))).find(|p| p.is_file())
}

/// What a browser makes of a page.
struct Seen {
    dom: String,
    errors: String,
    /// Addresses that the page asked for, itself not counted.
    asked: Vec<String>,
}

fn open(browser: &Path, name: &str, html: &str) -> Seen {
    let dir = std::env::temp_dir().join(format!("frosh-report-{}-{name}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let (file, log) = (dir.join("report.html"), dir.join("net.json"));
    fs::write(&file, html).unwrap();
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        .args(["--enable-logging=stderr", "--v=0", "--host-resolver-rules=MAP * ~NOTFOUND"])
        .args(["--disable-background-networking", "--disable-component-update", "--no-first-run"])
        .arg(format!("--user-data-dir={}", dir.join("profile").display()))
        .arg(format!("--log-net-log={}", log.display()))
        .args(["--dump-dom"])
        .arg(format!("file://{}", file.display()))
        .output()
        .unwrap();
    // One event a line. What the browser asks for by itself has no origin as its initiator.
    let log = fs::read_to_string(&log).unwrap_or_default();
    let by_page = |line: &&str| {
        line.contains("\"initiator\":\"") && !line.contains("\"initiator\":\"not an origin\"")
    };
    let asked =
        log.lines().filter(by_page).filter_map(|l| l.split("\"url\":\"").nth(1)?.split('"').next());
    let seen = Seen {
        dom: String::from_utf8_lossy(&output.stdout).into(),
        errors: String::from_utf8_lossy(&output.stderr).into(),
        asked: asked.filter(|a| !a.starts_with("data:")).map(String::from).collect(),
    };
    fs::remove_dir_all(&dir).ok();
    seen
}

#[test]
fn a_browser_shows_every_figure_and_fetches_nothing() {
    let Some(browser) = browser() else {
        sample::skipped("no Chromium on the PATH");
        return;
    };
    // First a page that does what ours must not, so that silence means something.
    let bad = "<!doctype html><img \
     src=\"http://outside.invalid/x.png\"><script>console.error('seen')</script>";
    let seen = open(&browser, "bad", bad);
    assert!(seen.asked.iter().any(|a| a.contains("outside.invalid")), "{:?}", seen.asked);
    assert!(seen.errors.contains("CONSOLE"), "{}", seen.errors);

    let seen = open(&browser, "good", &page(&sample::full()));
    assert_eq!(seen.asked, Vec::<String>::new());
    assert!(!seen.errors.contains("CONSOLE"), "{}", seen.errors);
    for Figure { id, .. } in FIGURES {
        let section = seen.dom.split(&format!("<section id=\"{id}\"")).nth(1);
        let section = section.unwrap_or_else(|| panic!("{id} is not in the page: {}", seen.errors));
        let section = section.split("</section>").next().unwrap();
        assert!(section.contains("<svg") && section.contains("</figcaption>"), "{id}");
    }
}
