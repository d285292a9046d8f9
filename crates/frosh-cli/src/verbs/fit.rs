//! `frosh fit`: a model from a sketch.

use crate::args::{Common, Fitting, check_distinct};
use crate::choice;
use crate::kinds;
use crate::output::{count, print, print_json};
use anyhow::{Context as _, Result};
use clap::Args;
use frosh::Hasher;
use serde_json::json;
use std::path::PathBuf;

/// Make a model from a sketch: any number of bits up to half the sketch's rows.
#[derive(Args)]
#[command(after_help = "Example:
  frosh fit all.sketch --bits 128 -o model.frosh")]
pub(crate) struct Fit {
    /// The sketch file
    #[arg(value_name = "SKETCH")]
    sketch: PathBuf,
    /// The model file to write
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    fitting: Fitting,
}

impl Fit {
    pub(crate) fn run(&self, common: &Common) -> Result<()> {
        check_distinct(&self.output, [&*self.sketch])?;
        let sketch = kinds::sketch(&self.sketch)?;
        let hasher = self.fitting.hasher(&sketch);
        let hasher = hasher.with_context(|| self.sketch.display().to_string())?;
        self.fitting.check_variance(&hasher)?;
        let same = |old: Hasher| old.id() == hasher.id();
        if !self.fitting.force && !Hasher::load(&self.output).is_ok_and(same) {
            kinds::check_replaces_no_model(&self.output)?;
        }
        hasher.save(&self.output)?;
        if common.json {
            return print_json(&json!({
                "model": self.output.display().to_string(),
                "id": hasher.id().to_string(),
                "rows": hasher.rows(),
                "dim": hasher.dim(),
                "bits": hasher.bits(),
                "rank": hasher.rank(),
                "rotation": hasher.rotation().as_str(),
                "ranking": hasher.ranking().as_str(),
                "choice": hasher.choice().map(choice::object),
            }));
        }
        if common.quiet {
            return Ok(());
        }
        print(&format!(
            "{}: {} bits, {} rotation, from {} rows of {} dimensions\n{}\
             next: frosh encode {} DATA -o codes.frosh\n",
            self.output.display(),
            hasher.bits(),
            hasher.rotation(),
            count(hasher.rows()),
            hasher.dim(),
            choice::summary(&hasher),
            self.output.display()
        ))
    }
}
