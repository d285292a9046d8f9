//! From values to places on an axis, and where its ticks are.

use crate::text::tick;

/// How values are spread over an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Linear,
    Log,
}

/// Beyond this size nothing is drawn: no measurement is, and sums stay finite.
const LARGEST: f64 = 1e15;

/// A range of values on a range of places.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    kind: Kind,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Kind {
    /// Whether a value has a place on such an axis.
    pub(super) fn can_draw(self, value: f64) -> bool {
        match self {
            Kind::Linear => value.abs() <= LARGEST,
            Kind::Log => (1.0 / LARGEST..=LARGEST).contains(&value),
        }
    }

    fn forth(self, value: f64) -> f64 {
        if self == Kind::Log { value.log10() } else { value }
    }

    fn back(self, value: f64) -> f64 {
        if self == Kind::Log { 10f64.powf(value) } else { value }
    }

    /// The range that holds all values, with some air; from zero where that costs little.
    pub(crate) fn range(self, values: impl IntoIterator<Item = f64>) -> (f64, f64) {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.into_iter().filter(|v| self.can_draw(*v)) {
            low = low.min(self.forth(value));
            high = high.max(self.forth(value));
        }
        if low > high {
            return if self == Kind::Log { (1.0, 10.0) } else { (0.0, 1.0) };
        }
        if high - low < 1e-9 * high.abs().max(1e-9) {
            let around = if self == Kind::Log { 0.3 } else { high.abs().max(1e-9) * 0.2 };
            (low, high) = (low - around, high + around);
        }
        let air = (high - low) * 0.06;
        let zero = self == Kind::Linear && low >= 0.0 && low < 0.55 * high;
        let low = if zero { 0.0 } else { low - air };
        (self.back(low), self.back(high + air))
    }
}

impl Scale {
    pub(super) fn new(kind: Kind, range: (f64, f64), from: f64, to: f64) -> Self {
        Scale { kind, low: kind.forth(range.0), high: kind.forth(range.1), from, to }
    }

    pub(super) fn at(&self, value: f64) -> f64 {
        let part = (self.kind.forth(value) - self.low) / (self.high - self.low);
        self.from + part * (self.to - self.from)
    }

    /// Values with a label, and values with a mark only.
    pub(super) fn ticks(&self) -> (Vec<f64>, Vec<f64>) {
        let span = self.high - self.low;
        match self.kind {
            Kind::Linear => (nice(self.low, self.high), Vec::new()),
            Kind::Log if span < 1.0 => {
                (nice(self.kind.back(self.low), self.kind.back(self.high)), Vec::new())
            }
            Kind::Log => {
                let step = (span / 6.0).ceil().max(1.0) as i32;
                let decades = self.low.floor() as i32..=self.high.ceil() as i32;
                let inside = |v: &f64| (self.low..=self.high).contains(&v.log10());
                // As many labels as fit: decades alone may be only two.
                let digits: &[f64] = match span {
                    s if s < 2.2 => &[1.0, 2.0, 5.0],
                    s if s < 3.0 => &[1.0, 3.0],
                    _ => &[1.0],
                };
                let labelled = decades.clone().filter(|d| d.rem_euclid(step) == 0);
                let labelled = labelled.flat_map(|d| digits.iter().map(move |m| m * 10f64.powi(d)));
                let minor =
                    decades.flat_map(|d| (1..10).map(move |m| f64::from(m) * 10f64.powi(d)));
                let minor = if step == 1 { minor.filter(inside).collect() } else { Vec::new() };
                (labelled.filter(inside).collect(), minor)
            }
        }
    }

    /// Of values that want a label, those whose labels do not touch: the ends come first.
    pub(super) fn apart(&self, values: &[f64]) -> Vec<f64> {
        let mut order: Vec<f64> =
            values.iter().copied().filter(|v| self.kind.can_draw(*v)).collect();
        order.dedup();
        let ends = (order.first().copied(), order.last().copied());
        let is_end = |v: f64| Some(v) == ends.0 || Some(v) == ends.1;
        // On a logarithmic axis powers of two are evenly apart, so they go before what lies between.
        order.sort_by_key(|v| (!is_end(*v), v.log2().fract() != 0.0));
        let mut taken: Vec<(f64, f64)> = Vec::new();
        order.retain(|&v| {
            let (at, half) = (self.at(v), tick(v).chars().count() as f64 * 3.4 + 3.0);
            let free = taken.iter().all(|(other, wide)| (at - other).abs() >= half + wide);
            if free {
                taken.push((at, half));
            }
            free
        });
        order
    }
}

/// Round values between two: steps of 1, 2 or 5 times a power of ten, about five of them.
fn nice(low: f64, high: f64) -> Vec<f64> {
    let rough = (high - low) / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].iter().map(|m| m * power).find(|s| *s >= rough * 0.99);
    let step = step.unwrap_or(rough);
    if !(step.is_finite() && step > 0.0) {
        return Vec::new();
    }
    let first = (low / step - 1e-9).ceil();
    (0..12).map(|i| (first + f64::from(i)) * step).filter(|v| *v <= high + step * 1e-9).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        let scale = Scale::new(Kind::Linear, (0.0, 0.73), 0.0, 100.0);
        let labels: Vec<String> = scale.ticks().0.into_iter().map(tick).collect();
        assert_eq!(labels, ["0", "0.2", "0.4", "0.6"]);
        let scale = Scale::new(Kind::Log, (0.02, 30.0), 0.0, 100.0);
        let labels: Vec<String> = scale.ticks().0.into_iter().map(tick).collect();
        assert_eq!(labels, ["0.1", "1", "10"]);
        let scale = Scale::new(Kind::Log, (3.0, 8.0), 0.0, 100.0);
        assert!(scale.ticks().0.len() >= 3);
    }

    #[test]
    fn odd_values_have_a_range_still() {
        for kind in [Kind::Linear, Kind::Log] {
            for values in
                [vec![], vec![f64::NAN], vec![0.0], vec![-1.0], vec![1e308, -1e308], vec![7.0, 7.0]]
            {
                let range = kind.range(values.clone());
                assert!(range.0 < range.1, "{kind:?} {values:?} {range:?}");
                let scale = Scale::new(kind, range, 0.0, 1.0);
                assert!(scale.ticks().0.iter().all(|t| t.is_finite()));
            }
        }
    }

    #[test]
    fn labels_do_not_touch() {
        let scale = Scale::new(Kind::Log, (16.0, 256.0), 0.0, 290.0);
        let kept = scale.apart(&[16.0, 32.0, 64.0, 100.0, 128.0, 200.0, 256.0]);
        assert!(kept.contains(&16.0) && kept.contains(&256.0) && kept.len() >= 5, "{kept:?}");
    }
}
