//! The page in a real browser, where one is installed.

use super::*;
use crate::sample;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    std::env::split_paths(&path).flat_map(|dir| names.map(|n| dir.join(n))).find(|p| p.is_file())
}

#[test]
fn a_browser_shows_every_figure_and_fetches_nothing() {
    let Some(browser) = browser() else {
        eprintln!("skipped: no Chromium on the PATH");
        return;
    };
    let dir = std::env::temp_dir().join(format!("frosh-report-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let (file, log) = (dir.join("report.html"), dir.join("net.json"));
    fs::write(&file, page(&sample::full())).unwrap();
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        .args(["--enable-logging=stderr", "--v=0", "--host-resolver-rules=MAP * ~NOTFOUND"])
        // What a browser asks for by itself would look like the page's doing.
        .args(["--disable-background-networking", "--disable-component-update", "--no-first-run"])
        .arg(format!("--user-data-dir={}", dir.join("profile").display()))
        .arg(format!("--log-net-log={}", log.display()))
        .args(["--dump-dom"])
        .arg(format!("file://{}", file.display()))
        .output()
        .unwrap();
    let (dom, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    for (id, ..) in FIGURES {
        let section = dom.split(&format!("<section id=\"{id}\"")).nth(1);
        let section = section.unwrap_or_else(|| panic!("{id} is not in the page: {errors}"));
        let section = section.split("</section>").next().unwrap();
        assert!(section.contains("<svg") && section.contains("</figcaption>"), "{id}");
    }
    assert!(!errors.contains("CONSOLE"), "{errors}");
    assert!(!errors.contains("net::ERR"), "{errors}");
    // Every request that belongs to a document or its parts names its address in the log.
    let log = fs::read_to_string(&log).unwrap_or_default();
    let page = file.display().to_string();
    for address in log.split("\"url\":\"").skip(1).filter_map(|rest| rest.split('"').next()) {
        let inside = address.ends_with(&page) || address.starts_with("data:");
        let own = address.contains("google") || address.contains("gvt1");
        assert!(inside || own, "the page asked for {address}");
    }
    fs::remove_dir_all(&dir).ok();
}

/// Writes the page and its figures to a folder, to be looked at: `FROSH_REPORT_LOOK=DIR cargo test look -- --ignored`,
/// from the records in `FROSH_REPORT_FROM=results.json` if that is set.
#[test]
#[ignore = "writes files to be looked at"]
fn look() {
    let dir = PathBuf::from(std::env::var_os("FROSH_REPORT_LOOK").expect("FROSH_REPORT_LOOK"));
    fs::create_dir_all(&dir).unwrap();
    let results = match std::env::var_os("FROSH_REPORT_FROM") {
        Some(path) => serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap(),
        None => sample::full(),
    };
    fs::write(dir.join("report.html"), page(&results)).unwrap();
    figures(&results).iter().for_each(|(name, svg)| fs::write(dir.join(name), svg).unwrap());
    fs::write(dir.join("claims.json"), serde_json::to_string_pretty(&claims(&results)).unwrap())
        .unwrap();
}
