//! What a model's fit measured and chose, in words and as JSON: what `train`, `fit` and `inspect` share.

use frosh::{Choice, Hasher, Measured};
use serde_json::{Value, json};

/// Bytes that a code takes by default: its bits, and the factors that the model's ranking needs.
pub(crate) fn bytes_per_row(hasher: &Hasher) -> usize {
    hasher.bits().div_ceil(8) + hasher.choice().map_or(0, |choice| choice.factor_bytes)
}

/// Whether codes have factors by default.
pub(crate) fn has_factors(hasher: &Hasher) -> bool {
    hasher.choice().is_some_and(|choice| choice.factor_bytes > 0)
}

/// What was chosen, and what recall to expect; nothing if the fit did not choose.
pub(crate) fn summary(hasher: &Hasher) -> String {
    let Some(choice) = hasher.choice() else { return String::new() };
    let forecast = &choice.forecast;
    let factors = match choice.factor_bytes {
        0 => String::new(),
        1 => " with 1 byte of factors".into(),
        bytes => format!(" with {bytes} bytes of factors"),
    };
    let about = if forecast.measured { "" } else { "about " };
    let reached = if forecast.reranked < 0.9 { "only " } else { "" };
    format!(
        "chosen on sampled rows: {} rotation, {} ranking{factors}\n\
         expect recall@{} of {about}{:.2} (± {:.2}) by codes alone, {reached}{:.2} after re-ranking {} candidates \
         (--oversample {})\n",
        choice.rotation,
        choice.ranking,
        forecast.k,
        forecast.recall,
        2.0 * forecast.standard_error,
        forecast.reranked,
        forecast.k * forecast.oversample,
        forecast.oversample,
    )
}

/// Everything that was measured.
pub(crate) fn object(choice: &Choice) -> Value {
    json!(choice)
}

/// A table of the alternatives.
pub(crate) fn table(choice: &Choice) -> String {
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
