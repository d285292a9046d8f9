//! What a partial aggregate sends: sketches that are not merged yet, and how many rows were left out.
//!
//! ```text
//! "FRSHagg1"   8 bytes: kind and version
//! left out     u64, little endian: rows that could not be used
//! sketches     u32: their number; then for each a u64 length and the bytes of a sketch file
//! ```
//!
//! Sketches are merged only at the end, all at once and in an order of their own. So neither the order in which states
//! arrive nor the way in which they are collected changes the result.

use datafusion::common::{DataFusionError, Result, exec_datafusion_err};
use frosh::Sketch;

const MAGIC: &[u8; 8] = b"FRSHagg1";

/// The sketches of a group so far.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    pub(crate) sketches: Vec<Sketch>,
    /// Rows that were left out, and are not counted in a sketch.
    pub(crate) left_out: u64,
}

impl Parts {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(self.left_out.to_le_bytes());
        bytes.extend((self.sketches.len() as u32).to_le_bytes());
        for sketch in &self.sketches {
            let sketch = sketch.to_bytes();
            bytes.extend((sketch.len() as u64).to_le_bytes());
            bytes.extend(sketch);
        }
        bytes
    }

    /// Adds the sketches of a state.
    pub(crate) fn add(&mut self, state: &[u8]) -> Result<()> {
        let mut rest = state;
        if take(&mut rest, 8)? != MAGIC {
            return Err(exec_datafusion_err!(
                "frosh: a partial result is of another version: run the same release of frosh on all machines"
            ));
        }
        self.left_out = self.left_out.saturating_add(number(&mut rest)?);
        let count = u32::from_le_bytes(take(&mut rest, 4)?.try_into().map_err(|_| torn())?);
        for _ in 0..count {
            let length = usize::try_from(number(&mut rest)?).map_err(|_| torn())?;
            let sketch = Sketch::from_bytes(take(&mut rest, length)?);
            self.sketches.push(sketch.map_err(|error| exec_datafusion_err!("frosh: {error}"))?);
        }
        if rest.is_empty() { Ok(()) } else { Err(torn()) }
    }

    /// One sketch of all, or none if there were no rows.
    pub(crate) fn merged(&self, function: &str) -> Result<Option<Sketch>> {
        if self.sketches.is_empty() {
            return Ok(None);
        }
        let merged = Sketch::merge(&self.sketches);
        let merged = merged.map_err(|error| exec_datafusion_err!("{function}: {error}"))?;
        let left_out = merged.left_out().saturating_add(self.left_out);
        Ok(Some(merged.with_left_out(left_out)))
    }

    /// Heap bytes in use.
    pub(crate) fn bytes(&self) -> usize {
        self.sketches.iter().map(|sketch| sketch.bytes() + size_of::<Sketch>()).sum()
    }
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8]> {
    let (head, tail) = rest.split_at_checked(length).ok_or_else(torn)?;
    *rest = tail;
    Ok(head)
}

fn number(rest: &mut &[u8]) -> Result<u64> {
    Ok(u64::from_le_bytes(take(rest, 8)?.try_into().map_err(|_| torn())?))
}

fn torn() -> DataFusionError {
    exec_datafusion_err!("frosh: a partial result is damaged")
}

#[cfg(test)]
mod tests {
    use super::*;
    use frosh::{Config, Rows, Sketcher};

    fn sketch(first: f32) -> Sketch {
        let rows: Vec<f32> = (0..60).map(|i| first + (i * i % 17) as f32).collect();
        let mut sketcher = Sketcher::new(Config::new(3).sketch_rows(4).worker_from_rows()).unwrap();
        sketcher.push(Rows::new(&rows, 3).unwrap()).unwrap();
        sketcher.finish()
    }

    #[test]
    fn states_come_back_in_any_order() {
        let parts =
            |from: f32| Parts { sketches: vec![sketch(from), sketch(from + 1.0)], left_out: 2 };
        let (a, b) = (parts(1.0).to_bytes(), parts(5.0).to_bytes());
        let merged = |states: [&[u8]; 2]| {
            let mut all = Parts::default();
            states.iter().for_each(|state| all.add(state).unwrap());
            // Collected once more, as if a stage lay between.
            let mut again = Parts::default();
            again.add(&all.to_bytes()).unwrap();
            again.merged("test").unwrap().unwrap()
        };
        let one = merged([&a, &b]);
        assert_eq!((one.rows(), one.left_out()), (80, 4));
        assert_eq!(one.to_bytes(), merged([&b, &a]).to_bytes());
        assert!(Parts::default().merged("test").unwrap().is_none());
    }

    #[test]
    fn damaged_states_are_refused() {
        let state = Parts { sketches: vec![sketch(1.0)], left_out: 0 }.to_bytes();
        for length in 0..state.len() {
            assert!(Parts::default().add(&state[..length]).is_err(), "{length}");
        }
        let mut longer = state.clone();
        longer.push(0);
        assert!(Parts::default().add(&longer).is_err());
        let mut other = state.clone();
        other[7] = b'2';
        let error = Parts::default().add(&other).unwrap_err().to_string();
        assert!(error.contains("same release"), "{error}");
        let mut huge = state;
        huge[16..20].fill(255);
        assert!(Parts::default().add(&huge).is_err());
    }
}
