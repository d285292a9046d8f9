//! Conversion between element types. Floats are rounded to the nearest and must stay finite; values that
//! become integers must be whole numbers in range.

use crate::batch::{Kind, Values};
use crate::error::{Fault, Hint};
use half::f16;

/// Converts `values` to `kind`, into `out`. `first` is the number of the first row, for messages.
pub(crate) fn cast(
    values: &Values,
    kind: Kind,
    dim: usize,
    first: u64,
    out: &mut Values,
) -> Result<(), Fault> {
    out.clear(kind);
    let wide = values.to_f64();
    // Infinity and NaN can be converted to any float type.
    let fits: fn(f64) -> bool = match kind {
        Kind::F16 => |x| f16::from_f64(x).is_finite() || !x.is_finite(),
        Kind::F32 => |x| (x as f32).is_finite() || !x.is_finite(),
        Kind::F64 => |_| true,
        Kind::U8 => |x| f64::from(x as u8) == x,
        Kind::I8 => |x| f64::from(x as i8) == x,
    };
    if let Some(i) = wide.iter().position(|x| !fits(*x)) {
        let (row, column, value) = (first + (i / dim) as u64, i % dim, wide[i]);
        let why = format!("column {column} is {value}, which {kind} cannot hold");
        return Err(Fault::row(row, why).hint(Hint::ChooseOutputType));
    }
    match out {
        Values::F16(out) => out.extend(wide.iter().map(|x| f16::from_f64(*x))),
        Values::F32(out) => out.extend(wide.iter().map(|x| *x as f32)),
        Values::F64(out) => *out = wide,
        Values::U8(out) => out.extend(wide.iter().map(|x| *x as u8)),
        Values::I8(out) => out.extend(wide.iter().map(|x| *x as i8)),
    }
    Ok(())
}
