//! The scalar functions: `frosh_model`, `frosh_quantizer`, `frosh_encode`, `frosh_hamming`, `frosh_info`, `frosh_version`.
//! `frosh_distance` computes in `distance.rs`.

use crate::models::{self, Kind};
use crate::options::{EncodeOptions, ModelOptions};
use crate::vectors::{self, Bad, Sink};
use crate::{VERSION, binary, distance};
use datafusion::arrow::array::{
    ArrayRef, AsArray, BinaryBuilder, BinaryViewBuilder, StringBuilder, UInt32Builder,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{Result, ScalarValue, exec_datafusion_err, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use frosh::{Element, Model, Rows, Sketch};
use serde_json::json;
use std::sync::Arc;

/// The functions, which differ in what they compute from their arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Function {
    Model,
    Quantizer,
    Encode,
    Hamming,
    Distance,
    Info,
    Version,
}

#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Scalar {
    function: Function,
    signature: Signature,
}

impl Scalar {
    pub(crate) fn new(function: Function) -> Self {
        // The version is that of the process which runs the query: it must not be computed in advance.
        let volatility = match function {
            Function::Version => Volatility::Volatile,
            _ => Volatility::Immutable,
        };
        Self { function, signature: Signature::user_defined(volatility) }
    }
}

impl ScalarUDFImpl for Scalar {
    fn name(&self) -> &str {
        match self.function {
            Function::Model => "frosh_model",
            Function::Quantizer => "frosh_quantizer",
            Function::Encode => "frosh_encode",
            Function::Hamming => "frosh_hamming",
            Function::Distance => "frosh_distance",
            Function::Info => "frosh_info",
            Function::Version => "frosh_version",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let text = |kind: &DataType| {
            matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
        };
        let bytes = binary::is_binary;
        let mut coerced = types.to_vec();
        let fits = match (self.function, types) {
            (Function::Model | Function::Quantizer, [sketch, length, rest @ ..]) => {
                coerced[1] = DataType::Int64;
                bytes(sketch) && length.is_integer() && rest.len() <= 1 && rest.iter().all(text)
            }
            (Function::Encode, [vector, model, rest @ ..]) => {
                vectors::check_type(self.name(), vector)?;
                bytes(model) && rest.len() <= 1 && rest.iter().all(text)
            }
            (Function::Hamming, [a, b]) => bytes(a) && bytes(b),
            (Function::Distance, [code, vector, model]) => {
                vectors::check_type(self.name(), vector)?;
                bytes(code) && bytes(model)
            }
            (Function::Info, [one]) => bytes(one),
            (Function::Version, []) => true,
            _ => false,
        };
        if fits {
            return Ok(coerced);
        }
        match self.function {
            Function::Model => plan_err!("frosh_model takes a sketch, bits and a text of options"),
            Function::Quantizer => {
                plan_err!("frosh_quantizer takes a sketch, bytes and a text of options")
            }
            Function::Encode => {
                plan_err!("frosh_encode takes a vector, a model and a text of options")
            }
            Function::Hamming => plan_err!("frosh_hamming takes two codes"),
            Function::Distance => plan_err!("frosh_distance takes a code, a vector and a model"),
            Function::Info => plan_err!("frosh_info takes a sketch or a model"),
            Function::Version => plan_err!("frosh_version takes no argument"),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.function {
            // A model is joined to many rows. A view repeats 16 bytes for each of them, not the model.
            Function::Model | Function::Quantizer => DataType::BinaryView,
            Function::Encode => DataType::Binary,
            Function::Hamming => DataType::UInt32,
            Function::Distance => DataType::Float64,
            Function::Info | Function::Version => DataType::Utf8,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let (rows, args) = (args.number_rows, args.args);
        if self.function == Function::Version {
            return Ok(ColumnarValue::Scalar(ScalarValue::Utf8(Some(VERSION.into()))));
        }
        let single = args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if single { 1 } else { rows };
        let array = match self.function {
            Function::Model => model(Kind::Hasher, &args, rows)?,
            Function::Quantizer => model(Kind::Quantizer, &args, rows)?,
            Function::Encode => encode(&args, rows)?,
            Function::Hamming => hamming(&args, rows)?,
            Function::Distance => distance::of(&args, rows)?,
            _ => info(&args, rows)?,
        };
        match single {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?)),
            false => Ok(ColumnarValue::Array(array)),
        }
    }
}

/// A column of bytes, or one value for all rows, which is not repeated.
pub(crate) enum Bytes {
    One(Option<Vec<u8>>),
    Column(ArrayRef),
}

impl Bytes {
    pub(crate) fn new(function: &str, value: &ColumnarValue) -> Result<Self> {
        match value {
            ColumnarValue::Array(array) => Ok(Self::Column(Arc::clone(array))),
            ColumnarValue::Scalar(scalar) => {
                let array = scalar.to_array()?;
                let first = binary::values(function, &array)?.next().flatten();
                Ok(Self::One(first.map(<[u8]>::to_vec)))
            }
        }
    }

    /// One value for each of `rows` rows.
    pub(crate) fn iter(
        &self,
        function: &str,
        rows: usize,
    ) -> Result<Box<dyn Iterator<Item = Option<&[u8]>> + '_>> {
        match self {
            Self::One(value) => Ok(Box::new(std::iter::repeat_n(value.as_deref(), rows))),
            Self::Column(array) => binary::values(function, array),
        }
    }
}

/// The options, which must be the same for all rows.
fn text_option(function: &str, args: &[ColumnarValue], index: usize) -> Result<String> {
    match args.get(index) {
        None => Ok(String::new()),
        Some(ColumnarValue::Scalar(
            ScalarValue::Utf8(Some(text))
            | ScalarValue::LargeUtf8(Some(text))
            | ScalarValue::Utf8View(Some(text)),
        )) => Ok(text.clone()),
        Some(_) => plan_err!("{function}: the options must be a literal text"),
    }
}

fn model(kind: Kind, args: &[ColumnarValue], rows: usize) -> Result<ArrayRef> {
    let name = kind.function();
    let options = ModelOptions::parse(kind, &text_option(name, args, 2)?)?;
    let sketches = Bytes::new(name, &args[0])?;
    let lengths = cast(&args[1].to_array(rows)?, &DataType::Int64)?;
    let mut out = BinaryViewBuilder::new();
    let pairs = sketches.iter(name, rows)?.zip(lengths.as_primitive::<Int64Type>().iter());
    for (row, (sketch, length)) in pairs.enumerate() {
        let (Some(sketch), Some(length)) = (sketch, length) else {
            out.append_null();
            continue;
        };
        let failed =
            |error: String| exec_datafusion_err!("{name}: row {row} of its batch: {error}");
        let sketch = Sketch::from_bytes(sketch).map_err(|e| failed(e.to_string()))?;
        let model = models::fit(kind, &sketch, length, &options).map_err(failed)?;
        out.append_value(model.to_bytes());
    }
    Ok(Arc::new(out.finish()))
}

/// Encodes rows with one model.
struct Encoder<'a> {
    model: &'a Model,
    skip_bad: bool,
    /// Number of the first row in the batch, for errors.
    first: usize,
    out: &'a mut BinaryBuilder,
}

impl Sink for Encoder<'_> {
    fn take<T: Element>(&mut self, _: usize, rows: Rows<'_, T>) -> Result<Option<(usize, Bad)>> {
        let (good, bad) = match rows.check() {
            Ok(()) => (rows.len(), None),
            Err(
                error @ (frosh::Error::NotFinite { row, .. } | frosh::Error::TooLarge { row, .. }),
            ) => (row, Some((row, Bad::Value(error)))),
            Err(error) => return exec_err!("frosh_encode: {error}"),
        };
        if good > 0 {
            let codes = self.model.encode(rows.slice(0..good));
            let codes = codes.map_err(|error| exec_datafusion_err!("frosh_encode: {error}"))?;
            (0..codes.len()).for_each(|i| self.out.append_value(codes.row(i)));
        }
        Ok(bad)
    }

    fn bad(&mut self, row: usize, why: Bad) -> Result<()> {
        if self.skip_bad || matches!(why, Bad::Null) {
            self.out.append_null();
            return Ok(());
        }
        exec_err!(
            "frosh_encode: row {} of its batch, from 0: {why}. The option skip_bad gives a null for such rows: \
             frosh_encode(vector, model, 'skip_bad')",
            self.first + row
        )
    }
}

fn encode(args: &[ColumnarValue], rows: usize) -> Result<ArrayRef> {
    let name = "frosh_encode";
    let options = EncodeOptions::parse(&text_option(name, args, 2)?)?;
    let vectors = args[0].to_array(rows)?;
    let models = Bytes::new(name, &args[1])?;
    let mut out = BinaryBuilder::new();
    let models: Vec<Option<&[u8]>> = match &models {
        Bytes::One(value) => vec![value.as_deref()],
        Bytes::Column(_) => models.iter(name, rows)?.collect(),
    };
    let mut first = 0;
    while first < rows {
        let model = models[first.min(models.len() - 1)];
        // Rows that have the same model are encoded together.
        let count = match models.len() {
            1 => rows,
            _ => models[first..].iter().take_while(|other| same_model(model, **other)).count(),
        };
        match model {
            None => (0..count).for_each(|_| out.append_null()),
            Some(model) => {
                let model = models::read(name, model, options.effort)?;
                let mut dim = Some(model.dim());
                let skip_bad = options.skip_bad;
                let mut sink = Encoder { model: &model, skip_bad, first, out: &mut out };
                vectors::feed(&vectors.slice(first, count), &mut dim, &mut sink)?;
            }
        }
        first += count;
    }
    Ok(Arc::new(out.finish()))
}

/// Whether two values are the same model, at the same place in memory. Different places are not compared: models are long.
pub(crate) fn same_model(one: Option<&[u8]>, other: Option<&[u8]>) -> bool {
    match (one, other) {
        (Some(a), Some(b)) => std::ptr::eq(a, b) || (a.len() < 64 && a == b),
        (None, None) => true,
        _ => false,
    }
}

fn hamming(args: &[ColumnarValue], rows: usize) -> Result<ArrayRef> {
    let name = "frosh_hamming";
    let (a, b) = (Bytes::new(name, &args[0])?, Bytes::new(name, &args[1])?);
    let mut out = UInt32Builder::with_capacity(rows);
    for (row, pair) in a.iter(name, rows)?.zip(b.iter(name, rows)?).enumerate() {
        let (Some(a), Some(b)) = pair else {
            out.append_null();
            continue;
        };
        if a.len() != b.len() {
            return exec_err!(
                "{name}: row {row} of its batch: codes of {} and {} bytes are of different models",
                a.len(),
                b.len()
            );
        }
        out.append_value(bits_that_differ(a, b));
    }
    Ok(Arc::new(out.finish()))
}

pub(crate) fn bits_that_differ(a: &[u8], b: &[u8]) -> u32 {
    let (a, b) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    let words = a.0.iter().zip(b.0);
    let words = words.map(|(x, y)| (u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y)).count_ones());
    let rest = a.1.iter().zip(b.1).map(|(x, y)| (x ^ y).count_ones());
    words.sum::<u32>() + rest.sum::<u32>()
}

fn info(args: &[ColumnarValue], rows: usize) -> Result<ArrayRef> {
    let name = "frosh_info";
    let values = Bytes::new(name, &args[0])?;
    let mut out = StringBuilder::new();
    for (row, value) in values.iter(name, rows)?.enumerate() {
        match value {
            None => out.append_null(),
            Some(bytes) => {
                let facts = facts(bytes);
                out.append_value(facts.ok_or_else(|| {
                    exec_datafusion_err!(
                        "{name}: row {row} of its batch: {} bytes are neither a sketch nor a model",
                        bytes.len()
                    )
                })?);
            }
        }
    }
    Ok(Arc::new(out.finish()))
}

/// What is known of a sketch or a model, as JSON.
fn facts(bytes: &[u8]) -> Option<String> {
    if let Ok(sketch) = Sketch::from_bytes(bytes) {
        let certificate = sketch.certificate();
        return Some(
            json!({
                "kind": "sketch",
                "rows": sketch.rows(),
                "left_out": sketch.left_out(),
                "dim": sketch.dim(),
                "method": sketch.method().as_str(),
                "metric": sketch.metric().as_str(),
                "seed": sketch.seed(),
                "sketch_rows": sketch.sketch_rows(),
                "sampled_rows": sketch.reservoir_rows(),
                "parts": sketch.workers().len(),
                "removed": certificate.removed,
                "mass": certificate.mass,
                "bytes": bytes.len(),
            })
            .to_string(),
        );
    }
    Some(match Model::from_bytes(bytes).ok()? {
        Model::Quantizer(quantizer) => json!({
            "kind": "quantizer",
            "id": quantizer.id().to_string(),
            "bytes_per_row": quantizer.bytes(),
            "dim": quantizer.dim(),
            "directions": quantizer.directions(),
            "metric": quantizer.metric().as_str(),
            "ranking": "estimated",
            "seed": quantizer.seed(),
            "rows": quantizer.rows(),
            "bytes": bytes.len(),
        })
        .to_string(),
        model => {
            let hasher = model.hasher()?;
            json!({
                "kind": "model",
                "id": hasher.id().to_string(),
                "bits": hasher.bits(),
                "dim": hasher.dim(),
                "method": hasher.method().as_str(),
                "metric": hasher.metric().as_str(),
                "rotation": hasher.rotation().as_str(),
                "ranking": hasher.ranking().as_str(),
                "rows": hasher.rows(),
                "bytes": bytes.len(),
            })
            .to_string()
        }
    })
}
