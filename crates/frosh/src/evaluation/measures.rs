//! Measures of a ranking by distance, computed from two histograms.
//!
//! Codes have few possible distances, so a ranking is mostly ties. All measures follow from the number of
//! items and of relevant items at each distance: a [`Tally`].
//!
//! **Equation** (section 12.2 of `docs/algorithms.md`). Let a group of equal distance hold t items, k of them
//! relevant, after N nearer items with h hits, and let R items be relevant in all.
//!
//! ```text
//! (a) average precision     1/R  sum over groups of  k/t  sum_{i=1..t} (h + 1 + (i-1)(k-1)/(t-1)) / (N + i)
//! (b) area                  trapezoids under (recall, precision) at radius 0, 1, 2, ...
//! (c) interpolated          mean over i = 0..=100 of the best precision at recall i/100 or more
//!     hits in the first N+i h + k i / t
//! ```
//!
//! (a) is the expected average precision with ties in random order. The literature calls (a), (b) and (c) MAP; they are
//! not comparable.
//!
//! **Where we differ.** The usual programs put ties in database order, which depends on chance. The inner sum of (a) is
//! computed in closed form. (b) includes the largest radius, which the usual toolboxes omit; as there, the first
//! precision applies from recall 0. The paper does not define (c) inside a group of ties; here a cut inside a group has
//! its expected number of hits.
//!
//! **Cost.** One addition an item; then each measure is linear in the number of distances.

/// The number of items and of relevant items at each distance, for one query or summed over many.
///
/// ```
/// use frosh::Tally;
/// let mut tally = Tally::new(2);
/// for (distance, relevant) in [(0, true), (1, false), (1, true), (2, false)] {
///     tally.add(distance, relevant);
/// }
/// assert!((tally.average_precision().unwrap() - 0.916667).abs() < 1e-6);
/// assert_eq!(tally.hits_within(2), 1.5); // one of the two ties is relevant
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    items: Vec<u64>,
    relevant: Vec<u64>,
}

/// A point of a precision-recall curve: precision and recall of all items within a radius.
///
/// ```
/// use frosh::{CurvePoint, Tally};
/// let mut tally = Tally::new(2);
/// for (distance, relevant) in [(0, true), (1, false), (1, true), (2, false)] {
///     tally.add(distance, relevant);
/// }
/// let curve: Vec<CurvePoint> = tally.curve();
/// assert_eq!(curve[0], CurvePoint { radius: 0, precision: 1.0, recall: 0.5 });
/// assert_eq!(curve[2], CurvePoint { radius: 2, precision: 0.5, recall: 1.0 });
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePoint {
    /// The largest distance that is included.
    pub radius: usize,
    /// Share of the items within the radius that are relevant.
    pub precision: f64,
    /// Share of the relevant items that are within the radius.
    pub recall: f64,
}

/// The items at one distance, and the counts of nearer items.
#[derive(Clone, Copy)]
struct Group {
    distance: usize,
    /// N, the items before the group.
    before: u64,
    /// h, the relevant items among them.
    hits: u64,
    /// t, the items in the group; at least one.
    items: u64,
    /// k, the relevant items among them.
    relevant: u64,
}

impl Group {
    /// Expected precision of a cut after `i` items of the group.
    fn precision(&self, i: u64) -> f64 {
        (self.hits as f64 + self.relevant as f64 * (i as f64 / self.items as f64))
            / (self.before + i) as f64
    }
}

impl Tally {
    /// An empty tally for distances 0 to `largest`. 16 bytes for each distance.
    ///
    /// # Panics
    ///
    /// If the memory for the counts cannot be allocated.
    pub fn new(largest: usize) -> Self {
        let distances = largest.checked_add(1).expect("fewer distances than there are numbers");
        Self { items: vec![0; distances], relevant: vec![0; distances] }
    }

    /// A tally from the two histograms. No distance may have more relevant items than items.
    pub(super) fn from_counts(items: Vec<u64>, relevant: Vec<u64>) -> Self {
        debug_assert!(items.iter().zip(&relevant).all(|(i, r)| r <= i));
        Self { items, relevant }
    }

    /// Counts one item.
    ///
    /// # Panics
    ///
    /// If `distance` is above the largest distance.
    pub fn add(&mut self, distance: usize, relevant: bool) {
        self.items[distance] += 1;
        self.relevant[distance] += u64::from(relevant);
    }

    /// Adds the counts of another tally, which may have another largest distance.
    pub fn merge(&mut self, other: &Self) {
        let length = self.items.len().max(other.items.len());
        self.items.resize(length, 0);
        self.relevant.resize(length, 0);
        self.items.iter_mut().zip(&other.items).for_each(|(a, b)| *a += b);
        self.relevant.iter_mut().zip(&other.relevant).for_each(|(a, b)| *a += b);
    }

    /// Number of items at each distance.
    pub fn items(&self) -> &[u64] {
        &self.items
    }

    /// Number of relevant items at each distance.
    pub fn relevant(&self) -> &[u64] {
        &self.relevant
    }

    /// Number of relevant items at all distances.
    pub fn total_relevant(&self) -> u64 {
        self.relevant.iter().sum()
    }

    /// The distances that occur, nearest first.
    fn groups(&self) -> impl Iterator<Item = Group> {
        let (mut before, mut hits) = (0, 0);
        let counts = self.items.iter().zip(&self.relevant).enumerate();
        counts.filter(|(_, (items, _))| **items > 0).map(move |(distance, (&items, &relevant))| {
            let group = Group { distance, before, hits, items, relevant };
            before += items;
            hits += relevant;
            group
        })
    }

    /// Average precision (a), with ties in random order; `None` if no item is relevant.
    pub fn average_precision(&self) -> Option<f64> {
        let sum: f64 =
            self.groups().filter(|g| g.relevant > 0).map(|g| expected_precisions(&g)).sum();
        let total = self.total_relevant();
        (total > 0).then(|| sum / total as f64)
    }

    /// Area under the precision-recall curve (b). For a sum of tallies it is the pooled area. `None` if no
    /// item is relevant.
    pub fn area(&self) -> Option<f64> {
        let mut last: Option<CurvePoint> = None;
        let mut area = 0.0;
        for point in self.curve() {
            let (recall, precision) =
                last.map_or((0.0, point.precision), |p| (p.recall, p.precision));
            area += (point.recall - recall) * (point.precision + precision) / 2.0;
            last = Some(point);
        }
        last.map(|_| area)
    }

    /// Mean of the interpolated precisions at recall 0, 0.01, ..., 1 (c); `None` if no item is relevant.
    pub fn interpolated(&self) -> Option<f64> {
        const STEPS: u128 = 100;
        let total = u128::from(self.total_relevant());
        if total == 0 {
            return None;
        }
        let groups: Vec<Group> = self.groups().collect();
        // Precision is monotonic within a group, so its maximum is at one of the two ends.
        let mut best: Vec<f64> = groups.iter().map(|g| g.precision(g.items)).collect();
        for g in (1..best.len()).rev() {
            best[g - 1] = best[g - 1].max(best[g]);
        }
        let (mut g, mut sum) = (0, 0.0);
        for step in 0..=STEPS {
            // In integers: recall reaches step / 100 in group g, after i of its items.
            let needed = step * total;
            while u128::from(groups[g].hits + groups[g].relevant) * STEPS < needed {
                g += 1;
            }
            let Group { hits, items, relevant, .. } = groups[g];
            let missing = needed.saturating_sub(u128::from(hits) * STEPS);
            let i = match u128::from(relevant) * STEPS {
                0 => 1,
                all => (missing * u128::from(items)).div_ceil(all).max(1),
            };
            sum += groups[g].precision(i as u64).max(best[g]);
        }
        Some(sum / (STEPS + 1) as f64)
    }

    /// The precision-recall curve, with one point for each distance that occurs. Empty if no item is relevant.
    pub fn curve(&self) -> Vec<CurvePoint> {
        let total = self.total_relevant();
        let point = |g: Group| CurvePoint {
            radius: g.distance,
            precision: g.precision(g.items),
            recall: (g.hits + g.relevant) as f64 / total as f64,
        };
        if total > 0 { self.groups().map(point).collect() } else { Vec::new() }
    }

    /// Expected number of relevant items among the first `rank` items, with ties in random order. If the relevant items
    /// are the k exact nearest, this divided by k is the recall at `rank`.
    pub fn hits_within(&self, rank: u64) -> f64 {
        let Some(group) = self.groups().take_while(|g| g.before < rank).last() else {
            return 0.0;
        };
        let inside = (rank - group.before).min(group.items);
        group.hits as f64 + group.relevant as f64 * (inside as f64 / group.items as f64)
    }

    /// Expected share of the relevant items among the first `rank` items; `None` if no item is relevant.
    pub fn recall_at(&self, rank: u64) -> Option<f64> {
        let total = self.total_relevant();
        (total > 0).then(|| self.hits_within(rank) / total as f64)
    }
}

/// The sum over the relevant items of a group of the expected precision at their ranks.
///
/// With b = (k-1)/(t-1), each term (h + 1 + b (i-1)) / (N+i) is b + (h + 1 - b (N+1)) / (N+i), so
/// only a harmonic sum remains.
fn expected_precisions(g: &Group) -> f64 {
    let (before, hits) = (g.before as f64, g.hits as f64);
    let (items, relevant) = (g.items as f64, g.relevant as f64);
    let slope = if g.items > 1 { (relevant - 1.0) / (items - 1.0) } else { 0.0 };
    let rest = hits + 1.0 - slope * (before + 1.0);
    relevant / items * (slope * items + rest * harmonic(g.before, g.items))
}

/// 1/(n+1) + ... + 1/(n+t). Terms up to n = 64 are added directly, the others by the asymptotic series of the harmonic
/// numbers in powers of n + 1/2; the first omitted term is below 1e-17.
fn harmonic(mut n: u64, mut t: u64) -> f64 {
    let mut sum = 0.0;
    while n < 64 && t > 0 {
        n += 1;
        t -= 1;
        sum += 1.0 / n as f64;
    }
    if t == 0 {
        return sum;
    }
    let (from, to) = (n as f64 + 0.5, (n + t) as f64 + 0.5);
    let series = |x: f64| {
        let y = 1.0 / (x * x);
        y * (1.0 / 24.0 + y * (-7.0 / 960.0 + y * (31.0 / 8064.0)))
    };
    sum + libm::log1p(t as f64 / from) + (series(to) - series(from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tally(items: &[(usize, bool)]) -> Tally {
        let mut tally = Tally::new(items.iter().map(|i| i.0).max().unwrap_or(0));
        items.iter().for_each(|i| tally.add(i.0, i.1));
        tally
    }

    /// All permutations of `n` items.
    fn permutations(n: usize) -> Vec<Vec<usize>> {
        if n == 0 {
            return vec![vec![]];
        }
        let mut all = Vec::new();
        for shorter in permutations(n - 1) {
            for at in 0..n {
                let mut longer = shorter.clone();
                longer.insert(at, n - 1);
                all.push(longer);
            }
        }
        all
    }

    /// Mean over all orders of the items in which distances are sorted.
    fn expected(items: &[(usize, bool)], measure: impl Fn(&[bool]) -> f64) -> f64 {
        let (mut sum, mut orders) = (0.0, 0.0);
        for order in permutations(items.len()) {
            let ranked: Vec<_> = order.iter().map(|i| items[*i]).collect();
            if ranked.is_sorted_by_key(|i| i.0) {
                sum += measure(&ranked.iter().map(|i| i.1).collect::<Vec<_>>());
                orders += 1.0;
            }
        }
        sum / orders
    }

    fn average_precision(ranked: &[bool]) -> f64 {
        let (mut hits, mut sum) = (0.0, 0.0);
        for (i, relevant) in ranked.iter().enumerate() {
            if *relevant {
                hits += 1.0;
                sum += hits / (i + 1) as f64;
            }
        }
        sum / hits
    }

    /// Expected hits after each item, by the formula of section 12.2 of docs/algorithms.md.
    fn hits(tally: &Tally) -> Vec<f64> {
        let mut hits = vec![];
        let mut so_far = 0.0;
        for (t, k) in tally.items().iter().zip(tally.relevant()) {
            hits.extend((1..=*t).map(|i| so_far + *k as f64 * i as f64 / *t as f64));
            so_far += *k as f64;
        }
        hits
    }

    fn interpolated(tally: &Tally) -> f64 {
        let total = tally.total_relevant() as f64;
        let cuts: Vec<(f64, f64)> =
            hits(tally).iter().zip(1..).map(|(h, n)| (h / total, h / f64::from(n))).collect();
        let best = |recall: f64| {
            let enough = cuts.iter().filter(|c| c.0 >= recall - 1e-12);
            enough.map(|c| c.1).fold(0.0, f64::max)
        };
        (0..=100).map(|i| best(f64::from(i) / 100.0)).sum::<f64>() / 101.0
    }

    fn close(a: Option<f64>, b: f64) {
        assert!((a.unwrap() - b).abs() < 1e-12, "{a:?} is not {b}");
    }

    #[test]
    fn the_check_value_of_the_notes() {
        let t = tally(&[(0, true), (1, false), (1, true), (2, false)]);
        close(t.average_precision(), 11.0 / 12.0);
        // Radius 0: precision 1, recall 1/2. Radius 1: 2/3 and 1. Radius 2: 1/2 and 1.
        close(t.area(), 0.5 + 0.5 * (1.0 + 2.0 / 3.0) / 2.0);
        let curve: Vec<_> = t.curve().iter().map(|p| (p.radius, p.precision, p.recall)).collect();
        assert_eq!(curve, [(0, 1.0, 0.5), (1, 2.0 / 3.0, 1.0), (2, 0.5, 1.0)]);
        // Best precision: 1 up to recall 1/2, then (1 + 1/2) / 2 up to 3/4, then 2/3.
        close(t.interpolated(), (51.0 + 25.0 * 0.75 + 25.0 * 2.0 / 3.0) / 101.0);
        assert_eq!(t.recall_at(2), Some(0.75));
    }

    #[test]
    fn perfect_and_worthless_rankings() {
        let perfect = tally(&[(0, true), (0, true), (3, false), (5, false)]);
        for measure in [perfect.average_precision(), perfect.interpolated()] {
            close(measure, 1.0);
        }
        // If all items have one distance, every measure is near the share of relevant items.
        let all: Vec<_> = (0..10_000).map(|i| (0, i % 10 == 0)).collect();
        close(tally(&all).area(), 0.1);
        close(tally(&all).interpolated(), 0.1);
        assert!((tally(&all).average_precision().unwrap() - 0.1).abs() < 1e-3);
    }

    #[test]
    fn without_relevant_items_there_is_no_measure() {
        for t in [Tally::new(4), tally(&[(0, false), (3, false)]), Tally::default()] {
            assert_eq!((t.average_precision(), t.area(), t.interpolated()), (None, None, None));
            assert_eq!((t.recall_at(1), t.hits_within(3), t.curve().len()), (None, 0.0, 0));
        }
    }

    #[test]
    fn the_closed_form_equals_the_sum() {
        for (before, hits, items, relevant) in [
            (0, 0, 1, 1),
            (0, 0, 5000, 5000),
            (63, 9, 2, 1),
            (70, 70, 100, 3),
            (999_000, 5, 400_000, 7),
        ] {
            let g = Group { distance: 0, before, hits, items, relevant };
            let (t, k) = (items as f64, relevant as f64);
            let slope = if items > 1 { (k - 1.0) / (t - 1.0) } else { 0.0 };
            let term = |i: u64| (hits as f64 + 1.0 + (i - 1) as f64 * slope) / (before + i) as f64;
            let want = k / t * (1..=items).map(term).sum::<f64>();
            let got = expected_precisions(&g);
            assert!((got - want).abs() < 1e-9 * want, "{got} is not {want}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn ties_are_counted_by_their_expectation(
            items in prop::collection::vec((0usize..3, any::<bool>()), 1..8),
        ) {
            let t = tally(&items);
            for rank in 0..=items.len() + 1 {
                let first = |ranked: &[bool]| ranked.iter().take(rank).filter(|r| **r).count() as f64;
                prop_assert!((t.hits_within(rank as u64) - expected(&items, first)).abs() < 1e-12);
            }
            if items.iter().any(|i| i.1) {
                close(t.average_precision(), expected(&items, average_precision));
                close(t.interpolated(), interpolated(&t));
            }
        }

        #[test]
        fn longer_rankings_equal_their_definitions(
            items in prop::collection::vec((0usize..30, prop::bool::weighted(0.2)), 1..400),
        ) {
            let t = tally(&items);
            prop_assume!(t.total_relevant() > 0);
            close(t.interpolated(), interpolated(&t));
            for (rank, want) in hits(&t).iter().enumerate() {
                prop_assert!((t.hits_within(rank as u64 + 1) - want).abs() < 1e-9);
            }
            let last = *t.curve().last().unwrap();
            prop_assert_eq!(last.recall, 1.0);
            prop_assert!((last.precision - t.total_relevant() as f64 / items.len() as f64).abs() < 1e-12);
        }

        #[test]
        fn adding_tallies_is_counting_together(
            items in prop::collection::vec((0usize..9, any::<bool>()), 2..60),
        ) {
            let (left, right) = items.split_at(items.len() / 3);
            let mut sum = tally(left);
            sum.merge(&tally(right));
            prop_assert_eq!(sum, tally(&items));
        }
    }
}
