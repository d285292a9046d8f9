//! From one element type to another: floats are rounded to the nearest, and integers must be whole numbers
//! in range, so that nothing is lost unseen.

use crate::batch::{Kind, Values};
use crate::error::Fault;
use crate::for_values;
use half::f16;

/// Writes `values` as `kind` into `out`. `first` is the number of the first row, for messages.
pub(crate) fn cast(
    values: &Values,
    kind: Kind,
    dim: usize,
    first: u64,
    out: &mut Values,
) -> Result<(), Fault> {
    out.clear(kind);
    match out {
        Values::F16(out) => {
            for_values!(values, v => out.extend(v.iter().map(|x| f16::from_f64(wide(*x)))))
        }
        Values::F32(out) => for_values!(values, v => out.extend(v.iter().map(|x| wide(*x) as f32))),
        Values::F64(out) => for_values!(values, v => out.extend(v.iter().map(|x| wide(*x)))),
        Values::U8(out) => for_values!(values, v => {
            let inexact = |x: f64| f64::from(x as u8) != x;
            refuse(v.iter().position(|x| inexact(wide(*x))).map(|i| (i, wide(v[i]))), kind, dim, first)?;
            out.extend(v.iter().map(|x| wide(*x) as u8));
        }),
        Values::I8(out) => for_values!(values, v => {
            let inexact = |x: f64| f64::from(x as i8) != x;
            refuse(v.iter().position(|x| inexact(wide(*x))).map(|i| (i, wide(v[i]))), kind, dim, first)?;
            out.extend(v.iter().map(|x| wide(*x) as i8));
        }),
    }
    Ok(())
}

fn wide<T: Into<f64>>(x: T) -> f64 {
    x.into()
}

fn refuse(bad: Option<(usize, f64)>, kind: Kind, dim: usize, first: u64) -> Result<(), Fault> {
    match bad {
        None => Ok(()),
        Some((i, value)) => Err(Fault::Row {
            row: first + (i / dim) as u64,
            why: format!(
                "column {} is {value}, which {kind} cannot hold; write a format of floats",
                i % dim
            ),
        }),
    }
}
