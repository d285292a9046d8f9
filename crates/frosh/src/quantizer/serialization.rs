//! File contents of a [`Quantizer`]. `docs/file-format.md` describes them.

use super::codebooks::{CELLS, Codebooks, WORDS};
use super::scalar::{LEVELS, ScalarCode};
use super::{Facts, Quantizer};
use crate::error::Result;
use crate::storage::container::{Reader, Saved, Writer, contradiction, saved};
use crate::storage::formats::{read_dim, read_rows};

saved!(Quantizer);

impl Saved for Quantizer {
    const FORMAT: &'static str = "frosh-quantizer";

    fn write<'a>(&'a self, file: &mut Writer<'a>) {
        let (facts, books) = (&self.facts, &self.books);
        file.fact("dim", facts.dim);
        file.fact("bytes", facts.bytes);
        file.fact("metric", facts.metric);
        file.fact("seed", facts.seed);
        file.fact("rows", facts.rows);
        file.fact("segments", books.segments.len());
        file.fact("id", self.id);
        if let Some(choice) = self.choice() {
            file.fact("choice", serde_json::json!(choice));
        }
        file.f64s("mean", &[facts.dim], &self.mean);
        file.f32s("directions", &[books.k, facts.dim], &self.directions);
        file.f32s("scales", &[books.k], &self.scales);
        file.f32s("cells", &[CELLS, books.k], &books.cells);
        file.f32s("words", &[books.words.len()], &books.words);
        file.f32s("slopes", &[2], &self.scalar.slopes);
        file.f32s("prediction", &[self.scalar.prediction.len()], &self.scalar.prediction);
        file.f32s("levels", &[self.scalar.levels.len()], &self.scalar.levels);
    }

    fn read(file: &Reader<'_>) -> Result<Self> {
        let facts = Facts {
            dim: read_dim(file)?,
            bytes: file.fact("bytes")?,
            metric: file.fact("metric")?,
            seed: file.fact("seed")?,
            rows: read_rows(file)?,
        };
        let scales = file.f32s("scales", &[None])?;
        let (k, levels) = (scales.len(), file.f32s("levels", &[None])?);
        if levels.len() != LEVELS {
            return Err(contradiction(&format!(
                "a scalar of {} levels and not {LEVELS}; if an earlier build of frosh wrote it, fit the model again",
                levels.len()
            )));
        }
        if k == 0 || k > facts.dim || !scales.iter().all(|s| *s > 0.0) {
            return Err(contradiction(&format!("{k} directions, or a scale that is not positive")));
        }
        if levels.windows(2).any(|pair| pair[0] > pair[1]) {
            return Err(contradiction("the levels of the scalar do not ascend"));
        }
        // A code has at least a byte for the cell, one for a word, and one for the scalar. The tensor of predictions has an
        // entry for each word, so no memory is allocated for bytes that the file only claims.
        let prediction = file.f32s("prediction", &[None])?;
        let books = facts
            .bytes
            .checked_sub(2)
            .filter(|books| {
                let predictions = books.checked_mul(WORDS).and_then(|n| n.checked_add(CELLS));
                *books > 0 && predictions == Some(prediction.len())
            })
            .ok_or_else(|| {
                contradiction(&format!(
                    "codes of {} bytes and {} predictions; if an earlier build of frosh wrote it, fit the model again",
                    facts.bytes,
                    prediction.len()
                ))
            })?;
        let segments: usize = file.fact("segments")?;
        if segments == 0 || segments > k || segments > books {
            return Err(contradiction(&format!("{segments} segments")));
        }
        let words = Codebooks::word_values(k, books, segments)
            .ok_or_else(|| contradiction(&format!("{books} codebooks of {k} coordinates")))?;
        // Tensors of other sizes are refused before anything of the claimed size is allocated.
        let cells = file.f32s("cells", &[Some(CELLS), Some(k)])?;
        let words = file.f32s("words", &[Some(words)])?;
        let all = Codebooks::of(k, books, segments, cells, words);
        let directions = file.f32s("directions", &[Some(k), Some(facts.dim)])?;
        let slopes = file.f32s("slopes", &[Some(2)])?;
        let scalar = ScalarCode { slopes: [slopes[0], slopes[1]], prediction, levels };
        let mean = file.f64s("mean", &[Some(facts.dim)])?;
        let mut quantizer = Quantizer::assemble(facts, mean, directions, scales, all, scalar);
        if let Some(choice) = file.optional("choice") {
            let choice = serde_json::from_str(choice)
                .map_err(|e| contradiction(&format!("the record of the choice: {e}")))?;
            quantizer.choice = Some(Box::new(choice));
        }
        if file.fact::<String>("id")? != quantizer.id().to_string() {
            return Err(contradiction("the id does not fit the content"));
        }
        Ok(quantizer)
    }
}
