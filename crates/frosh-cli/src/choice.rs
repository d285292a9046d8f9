//! What a model's fit measured and chose, in words and as JSON: what `train`, `fit` and `inspect` share.

use frosh::{Choice, Measured, Model, QuantizerChoice};
use serde_json::{Value, json};

/// The kind of a hasher, in JSON.
pub(crate) const SIGNS: &str = "signs";

/// The name of the model's kind, in JSON.
pub(crate) fn kind(model: &Model) -> &'static str {
    if model.hasher().is_some() { SIGNS } else { "additive" }
}

/// The size of a code, in words: bits of a hasher, bytes of a quantiser.
pub(crate) fn size_of_code(model: &Model) -> String {
    match model.hasher() {
        Some(hasher) => format!("{} bits", hasher.bits()),
        None => format!("{} bytes", model.bytes_per_row()),
    }
}

/// What the model is, in words.
pub(crate) fn title(model: &Model) -> String {
    match model.hasher() {
        Some(hasher) => format!("{} bits, {} rotation", hasher.bits(), hasher.rotation()),
        None => format!("quantiser of {} bytes", model.bytes_per_row()),
    }
}

/// Bytes that a code takes by default: its bits, and the factors that the model's ranking needs.
pub(crate) fn bytes_per_row(model: &Model) -> usize {
    model.bytes_per_row() + choice(model).map_or(0, |choice| choice.factor_bytes)
}

/// Whether codes have factors by default.
pub(crate) fn has_factors(model: &Model) -> bool {
    choice(model).is_some_and(|choice| choice.factor_bytes > 0)
}

fn choice(model: &Model) -> Option<&Choice> {
    model.hasher().and_then(|hasher| hasher.choice())
}

/// What was chosen, and what recall to expect; nothing if the fit did not choose.
pub(crate) fn summary(model: &Model) -> String {
    let Some(forecast) = model.forecast() else { return String::new() };
    let chosen = match model {
        Model::Quantizer(quantizer) => match quantizer.choice() {
            Some(choice) => {
                format!("slopes {} and {} of the scalar", choice.slopes[0], choice.slopes[1])
            }
            None => return String::new(),
        },
        _ => match choice(model) {
            Some(choice) => {
                let factors = match choice.factor_bytes {
                    0 => String::new(),
                    1 => " with 1 byte of factors".into(),
                    bytes => format!(" with {bytes} bytes of factors"),
                };
                format!("{} rotation, {} ranking{factors}", choice.rotation, choice.ranking)
            }
            None => return String::new(),
        },
    };
    let about = if forecast.measured { "" } else { "about " };
    let reached = if forecast.reranked < 0.9 { "only " } else { "" };
    format!(
        "chosen on sampled rows: {chosen}\n\
         expect recall@{} of {about}{:.2} (± {:.2}) by codes alone, {reached}{:.2} after re-ranking {} candidates \
         (--oversample {})\n",
        forecast.k,
        forecast.recall,
        2.0 * forecast.standard_error,
        forecast.reranked,
        forecast.k * forecast.oversample,
        forecast.oversample,
    )
}

/// Everything that was measured; null if the fit did not choose.
pub(crate) fn object(model: &Model) -> Value {
    match model {
        Model::Quantizer(quantizer) => json!(quantizer.choice()),
        _ => json!(choice(model)),
    }
}

/// A table of the alternatives; empty if the fit did not choose.
pub(crate) fn table(model: &Model) -> String {
    match model {
        Model::Quantizer(quantizer) => quantizer.choice().map(scalar_table).unwrap_or_default(),
        _ => choice(model).map(sign_table).unwrap_or_default(),
    }
}

fn scalar_table(choice: &QuantizerChoice) -> String {
    let slopes = format!("{} {}", choice.slopes[0], choice.slopes[1]);
    format!(
        "{:<16}{:>8}{:>11}\n{slopes:<16}{:>8.3}{:>11.3}\n",
        "slopes", "MAP", "recall", choice.map, choice.recall
    )
}

fn sign_table(choice: &Choice) -> String {
    let mut text = format!(
        "{:<16}{:<12}{:>8}{:>8}{:>11}\n",
        "rotation", "ranking", "factors", "MAP", "recall"
    );
    for measured in &choice.measured {
        let Measured { rotation, ranking, factor_bytes, map, recall, .. } = measured;
        let chosen = (rotation, ranking, factor_bytes)
            == (&choice.rotation, &choice.ranking, &choice.factor_bytes);
        let mark = if chosen { "  chosen" } else { "" };
        text += &format!(
            "{rotation:<16}{ranking:<12}{factor_bytes:>8}{map:>8.3}{recall:>11.3}{mark}\n"
        );
    }
    text
}
