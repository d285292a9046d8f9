//! `frosh fit`: a model from a sketch.

use crate::args::{Common, Fitting, check_distinct};
use crate::choice;
use crate::kinds;
use crate::output::{count, print, print_json};
use anyhow::{Context as _, Result};
use clap::Args;
use frosh::Model;
use serde_json::json;
use std::path::PathBuf;

/// Make a model from a sketch: any number of bits up to half the sketch's rows, or of bytes.
#[derive(Args)]
#[command(after_help = "Example:
  frosh fit all.sketch --bits 128 -o model.frosh
  frosh fit all.sketch --bytes 16 -o model.frosh  a quantiser")]
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
        let model = self.fitting.model(&sketch);
        let model = model.with_context(|| self.sketch.display().to_string())?;
        self.fitting.check_variance(&model, &sketch)?;
        let same = |old: Model| old.id() == model.id();
        if !self.fitting.force && !Model::load(&self.output).is_ok_and(same) {
            kinds::check_replaces_no_model(&self.output)?;
        }
        model.save(&self.output)?;
        if common.json {
            return print_json(&json!({
                "model": self.output.display().to_string(),
                "id": model.id().to_string(),
                "rows": model.rows(),
                "dim": model.dim(),
                "kind": choice::kind(&model),
                "bits": model.bits(),
                "bytes_per_row": choice::bytes_per_row(&model),
                "rank": model.hasher().map(frosh::Hasher::rank),
                "rotation": model.hasher().map(|hasher| hasher.rotation().as_str()),
                "ranking": model.ranking().as_str(),
                "choice": choice::object(&model),
            }));
        }
        if common.quiet {
            return Ok(());
        }
        print(&format!(
            "{}: {}, from {} rows of {} dimensions\n{}\
             next: frosh encode {} DATA -o codes.frosh\n",
            self.output.display(),
            choice::title(&model),
            count(model.rows()),
            model.dim(),
            choice::summary(&model),
            self.output.display()
        ))
    }
}
