//! File contents of a [`Hasher`]. `docs/file-format.md` describes them.

use crate::error::Result;
use crate::hasher::estimator::{LogScale, Scales};
use crate::hasher::{Choice, Facts, Hasher};
use crate::storage::container::{Reader, Saved, Writer, contradiction, saved};
use crate::storage::formats::{read_dim, read_rows};

saved!(Hasher);

impl Saved for Hasher {
    const FORMAT: &'static str = "frosh-hasher";

    fn write<'a>(&'a self, file: &mut Writer<'a>) {
        let facts = &self.facts;
        file.fact("dim", facts.dim);
        file.fact("bits", facts.bits);
        file.fact("metric", facts.metric);
        file.fact("method", facts.method);
        file.fact("rotation", facts.rotation);
        file.fact("seed", facts.seed);
        file.fact("rows", facts.rows);
        file.fact("rank", facts.rank);
        file.fact("exact_centre", facts.exact_centre);
        file.fact("id", self.id());
        if let Some(choice) = self.choice() {
            file.fact("choice", serde_json::json!(choice));
        }
        if let Some(scales) = self.scales() {
            let (norm, other, low, high) = match scales {
                Scales::Joint { norm, ratio, .. } => (norm, ratio, "ratio_low", "ratio_high"),
                Scales::Apart { norm, gain, .. } => (norm, gain, "gain_low", "gain_high"),
            };
            file.fact("norm_low", norm.low);
            file.fact("norm_high", norm.high);
            file.fact(low, other.low);
            file.fact(high, other.high);
            if scales.residual() > 0.0 {
                file.fact("beyond", scales.residual());
            }
        }
        file.f64s("mean", &[facts.dim], &self.mean);
        file.f32s("projection", &[facts.dim, facts.bits], &self.projection());
    }

    fn read(file: &Reader<'_>) -> Result<Self> {
        let (dim, bits) = (read_dim(file)?, file.fact::<usize>("bits")?);
        if bits == 0 {
            return Err(contradiction("codes of 0 bits"));
        }
        let facts = Facts {
            dim,
            bits,
            metric: file.fact("metric")?,
            method: file.fact("method")?,
            rotation: file.fact("rotation")?,
            seed: file.fact("seed")?,
            rows: read_rows(file)?,
            rank: file.fact("rank")?,
            exact_centre: file.fact("exact_centre")?,
        };
        let mean = file.f64s("mean", &[Some(dim)])?;
        let w = file.f32s("projection", &[Some(dim), Some(bits)])?;
        let directions = (0..bits).flat_map(|k| w.iter().skip(k).step_by(bits)).copied().collect();
        // Models of releases before there were factors have no scales.
        let scales = match file.optional("norm_low") {
            None => None,
            Some(_) => {
                let range = |low, high| -> Result<LogScale> {
                    Ok(LogScale { low: file.fact(low)?, high: file.fact(high)? })
                };
                let norm = range("norm_low", "norm_high")?;
                let residual = match file.optional("beyond") {
                    Some(_) => file.fact("beyond")?,
                    None => 0.0,
                };
                let scales = match file.optional("gain_low") {
                    None => {
                        Scales::Joint { norm, ratio: range("ratio_low", "ratio_high")?, residual }
                    }
                    Some(_) => {
                        Scales::Apart { norm, gain: range("gain_low", "gain_high")?, residual }
                    }
                };
                Some(scales.checked()?)
            }
        };
        let mut hasher = Hasher::assemble(facts, mean, directions, scales);
        if let Some(choice) = file.optional("choice") {
            let choice: Choice = serde_json::from_str(choice)
                .map_err(|e| contradiction(&format!("the record of the choice: {e}")))?;
            hasher.choice = Some(Box::new(choice));
        }
        if file.fact::<String>("id")? != hasher.id().to_string() {
            return Err(contradiction("the id does not fit the content"));
        }
        Ok(hasher)
    }
}
