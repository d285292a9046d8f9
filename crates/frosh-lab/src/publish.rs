//! The results for readers: the page, its summary, its figures as files, and the claims.

use crate::error::{Error, Result};
use crate::results::Results;
use crate::{claims, figures, page, readme, store};
use std::path::Path;

/// Reads the results in a folder.
pub fn load(folder: &Path) -> Result<Results> {
    let file = folder.join("results.json");
    if !file.exists() {
        return Err(Error::Usage(format!(
            "{} holds no results.json: run an experiment with --out {0} first",
            folder.display()
        )));
    }
    store::read_json(&file)
}

/// Writes `report.html`, its summary `README.md`, the figures as SVG files, and `claims.json` unless nothing of the
/// paper was run, into a folder.
pub fn publish(results: &Results, folder: &Path) -> Result<()> {
    store::write(&folder.join("report.html"), page(results).as_bytes())?;
    store::write(&folder.join("README.md"), readme(results).as_bytes())?;
    if !results.only_streams() {
        store::write(&folder.join("claims.json"), &store::json(&claims(results)))?;
    }
    figures(results)
        .iter()
        .try_for_each(|(name, svg)| store::write(&folder.join(name), svg.as_bytes()))
}
