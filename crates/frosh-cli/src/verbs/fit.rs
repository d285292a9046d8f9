//! `frosh fit`: a model from a sketch.

use crate::args::{Common, Fitting, check_distinct};
use crate::choice;
use crate::kinds;
use crate::output::{count, print, print_json};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use frosh::{Hasher, Model};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Make a model from a sketch: any number of bits up to half the sketch's rows, or of bytes.
#[derive(Args)]
#[command(after_help = "Example:
  frosh fit all.sketch --bits 128 -o model.frosh
  frosh fit all.sketch --bytes 16 -o model.frosh  a quantiser
  frosh fit new.sketch --like old.frosh -o new.frosh  few bits of codes change

--like is for those who update codes in place, and pay for each bit that changes. The new model has another id, and codes of
the two models cannot be searched together: encode everything again.")]
pub(crate) struct Fit {
    /// The sketch file
    #[arg(value_name = "SKETCH")]
    sketch: PathBuf,
    /// The model file to write
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Make a model of as many bits as this one, turned so that few bits of its codes change
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["bits", "bytes", "rotation"], help_heading = "Model")]
    like: Option<PathBuf>,
    /// How far to move from the old model: 0 changes the fewest bits, 3 few, 50 gives codes as good as a new model's
    #[arg(long, default_value_t = 3, value_name = "N", requires = "like", help_heading = "Model",
          value_parser = clap::value_parser!(u32).range(0..=1000))]
    rounds: u32,
    #[command(flatten)]
    fitting: Fitting,
}

impl Fit {
    pub(crate) fn run(&self, common: &Common) -> Result<()> {
        check_distinct(&self.output, [&*self.sketch].into_iter().chain(self.like.as_deref()))?;
        let sketch = kinds::sketch(&self.sketch)?;
        let old = self.like.as_deref().map(like).transpose()?;
        let model = match &old {
            Some(old) => sketch.hasher_like(old, self.rounds as usize).map(Model::from),
            None => self.fitting.model(&sketch),
        };
        let model = model.with_context(|| self.sketch.display().to_string())?;
        let flipped = match (&old, model.hasher()) {
            (Some(old), Some(new)) => Some(sketch.flipped_bits(old, new)?),
            _ => None,
        };
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
                "like": old.map(|old| old.id().to_string()),
                "rounds": flipped.map(|_| self.rounds),
                "flipped_bits": flipped,
            }));
        }
        if common.quiet {
            return Ok(());
        }
        let flips = flipped.map(|share| {
            format!("about {:.1} % of the bits differ from those of the old model\n", 100.0 * share)
        });
        print(&format!(
            "{}: {}, from {} rows of {} dimensions\n{}{}\
             next: frosh encode {} DATA -o codes.frosh\n",
            self.output.display(),
            choice::title(&model),
            count(model.rows()),
            model.dim(),
            choice::summary(&model),
            flips.unwrap_or_default(),
            self.output.display()
        ))
    }
}

/// The old model, which must have sign bits.
fn like(path: &Path) -> Result<Hasher> {
    match kinds::model(path, "frosh fit SKETCH --like MODEL")? {
        Model::Hasher(hasher) => Ok(hasher),
        _ => bail!(
            "{} is a quantiser, and only a model of sign bits can be turned towards an old one: leave out --like",
            path.display()
        ),
    }
}
