//! File format of [`Codes`].

use crate::error::Result;
use crate::hasher::estimator::{self, FactorColumn};
use crate::search::codes::{Codes, HasherId};
use crate::sketch::config::MAX_DIM;
use crate::storage::container::{Reader, Saved, Writer, contradiction, saved};

saved!(Codes);

/// The fact `kind` of codes of a quantiser. Sign bits have no such fact.
pub(super) const QUANTIZED: &str = "additive";

impl Saved for Codes {
    const FORMAT: &'static str = "frosh-codes";

    fn write<'a>(&'a self, file: &mut Writer<'a>) {
        file.fact("bits", self.bits);
        file.fact("hasher", self.hasher);
        if self.quantized {
            file.fact("kind", QUANTIZED);
        }
        file.u8s("codes", &[self.len(), self.bytes_per_row()], &self.data);
        if let Some(factors) = &self.factors {
            file.u8s("factors", &[self.len(), factors.bytes], &factors.data);
        }
    }

    fn read(file: &Reader<'_>) -> Result<Self> {
        let bits: usize = file.fact("bits")?;
        if bits == 0 || bits > MAX_DIM {
            return Err(contradiction(&format!("codes of {bits} bits")));
        }
        let id = file.fact_by("hasher", |text| u128::from_str_radix(text, 16).ok())?;
        let data = file.u8s("codes", &[None, Some(bits.div_ceil(8))])?;
        let mut codes = Codes::new(bits, HasherId(id), data);
        codes.quantized = match file.optional("kind") {
            None => false,
            Some(QUANTIZED) => true,
            Some(other) => return Err(contradiction(&format!("codes of the kind {other:?}"))),
        };
        if file.has("factors") {
            // One byte a row, or two.
            let bytes = file.width("factors").map_or(1, |w| w.clamp(1, estimator::MOST_BYTES));
            let data = file.u8s("factors", &[Some(codes.len()), Some(bytes)])?.into();
            codes.factors = Some(FactorColumn { bytes, data });
        }
        // Distances are computed on whole bytes, so bits past the last one must be 0.
        let spare = codes.bytes_per_row() * 8 - bits;
        if spare > 0
            && (0..codes.len()).any(|i| codes.row(i).last().is_some_and(|b| b >> (8 - spare) != 0))
        {
            return Err(contradiction("a code has bits past its end"));
        }
        Ok(codes)
    }
}
