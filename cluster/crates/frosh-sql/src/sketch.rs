//! `frosh_sketch` and `frosh_merge`: aggregates that give a sketch.

use crate::binary;
use crate::options::SketchOptions;
use crate::state::Parts;
use crate::vectors::{self, Bad, Sink};
use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue, exec_datafusion_err, exec_err, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{
    Accumulator, AggregateUDFImpl, Signature, Volatility, utils::AggregateOrderSensitivity,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Literal;
use frosh::{Element, Pool, Rows, Sketcher};
use std::sync::Arc;

/// `frosh_sketch(vector [, options])`: learns a sketch.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct FroshSketch {
    signature: Signature,
}

impl Default for FroshSketch {
    fn default() -> Self {
        Self { signature: Signature::user_defined(Volatility::Immutable) }
    }
}

impl AggregateUDFImpl for FroshSketch {
    fn name(&self) -> &str {
        "frosh_sketch"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [vector] | [vector, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View] => {
                vectors::check_type(self.name(), vector)?;
                Ok(types.to_vec())
            }
            _ => plan_err!("frosh_sketch takes a vector and a text of options"),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::LargeBinary)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        Ok(state_fields(args.name))
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let options = match args.exprs.get(1) {
            None => String::new(),
            Some(expression) => literal_text(self.name(), expression)?,
        };
        let options = SketchOptions::parse(&options)?;
        // The final side of the aggregate has no vectors: its only column is the state.
        let known = args.expr_fields.first().map(|field| field.data_type());
        let dim = known.and_then(|kind| vectors::check_type(self.name(), kind).ok().flatten());
        if let (Some(dim), Some(given)) = (dim, options.dim())
            && dim != given
        {
            return plan_err!(
                "frosh_sketch: the vectors have {dim} values, but the options say dim={given}"
            );
        }
        let dim = dim.or(options.dim());
        Ok(Box::new(SketchAccumulator {
            learner: Learner::new(options),
            dim,
            parts: Parts::default(),
        }))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

/// `frosh_merge(sketch)`: one sketch of many.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct FroshMerge {
    signature: Signature,
}

impl Default for FroshMerge {
    fn default() -> Self {
        Self { signature: Signature::user_defined(Volatility::Immutable) }
    }
}

impl AggregateUDFImpl for FroshMerge {
    fn name(&self) -> &str {
        "frosh_merge"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [sketch] if binary::is_binary(sketch) => Ok(types.to_vec()),
            _ => plan_err!("frosh_merge takes one argument: a sketch (binary)"),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::LargeBinary)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        Ok(state_fields(args.name))
    }

    fn accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(MergeAccumulator { parts: Parts::default() }))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

fn state_fields(name: &str) -> Vec<FieldRef> {
    // Binary has 32-bit offsets, which the states of many groups would overflow.
    vec![Arc::new(Field::new(format_state_name(name, "sketches"), DataType::LargeBinary, true))]
}

/// The value of an argument that must be a literal text.
fn literal_text(function: &str, expression: &Arc<dyn PhysicalExpr>) -> Result<String> {
    match expression.downcast_ref::<Literal>().map(Literal::value) {
        Some(
            ScalarValue::Utf8(Some(text))
            | ScalarValue::LargeUtf8(Some(text))
            | ScalarValue::Utf8View(Some(text)),
        ) => Ok(text.clone()),
        _ => plan_err!("{function}: the options must be a literal text, such as 'bits=64'"),
    }
}

/// Learns from the rows of one partition, or of one group in it.
#[derive(Debug)]
struct Learner {
    options: SketchOptions,
    sketcher: Option<Sketcher>,
    /// Rows before the current batch.
    seen: u64,
    left_out: u64,
}

impl Learner {
    fn new(options: SketchOptions) -> Self {
        Self { options, sketcher: None, seen: 0, left_out: 0 }
    }

    /// The learner of rows of `dim` values.
    fn sketcher(&mut self, dim: usize) -> Result<&mut Sketcher> {
        if self.sketcher.is_none() {
            // One thread: the engine runs one task for each slot.
            let made = Pool::new(1)
                .and_then(|pool| pool.install(|| Sketcher::new(self.options.config(dim))));
            self.sketcher =
                Some(made.map_err(|error| exec_datafusion_err!("frosh_sketch: {error}"))?);
        }
        self.sketcher.as_mut().ok_or_else(|| exec_datafusion_err!("frosh_sketch: no learner"))
    }
}

impl Sink for Learner {
    fn take<T: Element>(&mut self, _: usize, rows: Rows<'_, T>) -> Result<Option<(usize, Bad)>> {
        match self.sketcher(rows.dim())?.push(rows) {
            Ok(()) => Ok(None),
            Err(
                error @ (frosh::Error::NotFinite { row, .. } | frosh::Error::TooLarge { row, .. }),
            ) => Ok(Some((row, Bad::Value(error)))),
            Err(error) => exec_err!("frosh_sketch: {error}"),
        }
    }

    fn bad(&mut self, row: usize, why: Bad) -> Result<()> {
        if self.options.skip_bad {
            self.left_out += 1;
            return Ok(());
        }
        exec_err!(
            "frosh_sketch: row {} of its partition (row {row} of its batch, both from 0): {why}. The option skip_bad leaves \
             such rows out and counts them: frosh_sketch(vector, 'skip_bad')",
            self.seen + row as u64
        )
    }
}

#[derive(Debug)]
struct SketchAccumulator {
    learner: Learner,
    dim: Option<usize>,
    /// What other accumulators sent.
    parts: Parts,
}

impl SketchAccumulator {
    /// All that was learned or received.
    fn finish(&mut self) -> Parts {
        let mut parts = std::mem::take(&mut self.parts);
        if let Some(sketcher) = self.learner.sketcher.take() {
            // Without a usable row there is nothing to merge.
            parts.sketches.extend((sketcher.rows() > 0).then(|| sketcher.finish()));
        }
        parts.left_out += std::mem::take(&mut self.learner.left_out);
        parts
    }
}

impl Accumulator for SketchAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let Some(array) = values.first() else { return Ok(()) };
        vectors::feed(array, &mut self.dim, &mut self.learner)?;
        self.learner.seen += array.len() as u64;
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        merge_states(&mut self.parts, states)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![state(&self.finish())])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        evaluate(&self.finish(), "frosh_sketch")
    }

    fn size(&self) -> usize {
        let learner = self.learner.sketcher.as_ref().map_or(0, Sketcher::bytes);
        size_of_val(self) + learner + self.parts.bytes()
    }
}

#[derive(Debug)]
struct MergeAccumulator {
    parts: Parts,
}

impl Accumulator for MergeAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let Some(array) = values.first() else { return Ok(()) };
        for (row, bytes) in binary::values("frosh_merge", array)?.enumerate() {
            // As in other aggregates, a null adds nothing: it is the sketch of a group without rows.
            let Some(bytes) = bytes else { continue };
            let sketch = frosh::Sketch::from_bytes(bytes).map_err(|error| {
                exec_datafusion_err!("frosh_merge: row {row} of its batch is not a sketch: {error}")
            })?;
            self.parts.sketches.push(sketch);
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        merge_states(&mut self.parts, states)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![state(&std::mem::take(&mut self.parts))])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        evaluate(&std::mem::take(&mut self.parts), "frosh_merge")
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.parts.bytes()
    }
}

fn merge_states(parts: &mut Parts, states: &[ArrayRef]) -> Result<()> {
    let Some(array) = states.first() else { return Ok(()) };
    for state in binary::values("frosh", array)?.flatten() {
        parts.add(state)?;
    }
    Ok(())
}

fn state(parts: &Parts) -> ScalarValue {
    let empty = parts.sketches.is_empty() && parts.left_out == 0;
    ScalarValue::LargeBinary((!empty).then(|| parts.to_bytes()))
}

fn evaluate(parts: &Parts, function: &str) -> Result<ScalarValue> {
    let merged = parts.merged(function)?;
    Ok(ScalarValue::LargeBinary(merged.map(|sketch| sketch.to_bytes())))
}
