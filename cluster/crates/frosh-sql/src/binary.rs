//! Columns of bytes.

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, plan_err};

/// Whether this is a type of bytes.
pub(crate) fn is_binary(data_type: &DataType) -> bool {
    use DataType::{Binary, BinaryView, FixedSizeBinary, LargeBinary, Null};
    matches!(data_type, Binary | LargeBinary | BinaryView | FixedSizeBinary(_) | Null)
}

/// The values of a column of bytes.
pub(crate) fn values<'a>(
    function: &str,
    array: &'a ArrayRef,
) -> Result<Box<dyn Iterator<Item = Option<&'a [u8]>> + 'a>> {
    Ok(match array.data_type() {
        DataType::Binary => Box::new(array.as_binary::<i32>().iter()),
        DataType::LargeBinary => Box::new(array.as_binary::<i64>().iter()),
        DataType::BinaryView => Box::new(array.as_binary_view().iter()),
        DataType::FixedSizeBinary(_) => Box::new(array.as_fixed_size_binary().iter()),
        DataType::Null => Box::new(std::iter::repeat_n(None, array.len())),
        other => return plan_err!("{function}: expected bytes (Binary), got {other}"),
    })
}
