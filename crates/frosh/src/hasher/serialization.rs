//! File contents of a [`Hasher`]. `docs/file-format.md` describes them.

use crate::error::Result;
use crate::hasher::estimator::{LogScale, Scales};
use crate::hasher::{Facts, Hasher};
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
        if let Some(scales) = self.scales() {
            let (norm, other, low, high) = match scales {
                Scales::Joint { norm, ratio, .. } => (norm, ratio, "ratio_low", "ratio_high"),
                Scales::Apart { norm, gain } => (norm, gain, "gain_low", "gain_high"),
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
                // Models of earlier releases use one byte for each of the two factors.
                let scales = match file.optional("gain_low") {
                    None => Scales::Joint {
                        norm,
                        ratio: range("ratio_low", "ratio_high")?,
                        residual: match file.optional("beyond") {
                            Some(_) => file.fact("beyond")?,
                            None => 0.0,
                        },
                    },
                    Some(_) => Scales::Apart { norm, gain: range("gain_low", "gain_high")? },
                };
                Some(scales.checked()?)
            }
        };
        let hasher = Hasher::assemble(facts, mean, directions, scales);
        if file.fact::<String>("id")? != hasher.id().to_string() {
            return Err(contradiction("the id does not fit the content"));
        }
        Ok(hasher)
    }
}
