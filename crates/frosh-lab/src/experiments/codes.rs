//! Figures 5 and 6: MAP of all methods against the code length, and precision-recall curves at 128 bits.
//!
//! **Section 5.2.** MAP is the mean over queries of the average precision over the whole ranking, ties in expectation;
//! the paper approximates the same area by precisions evenly spaced along recall. A curve is "obtained through changing
//! the number of the returned points": its points are the mean precision and the mean recall over queries when each gets
//! the same number of rows, ties in expectation. (Pooling by Hamming radius, as some toolboxes do, is another measure: at
//! one radius queries get different numbers of rows, and its area on MNIST at 128 bits is .53 instead of .72.)
//!
//! **Cost.** Codes that both figures want are made and measured once.

use super::Lab;
use crate::data::{Ground, Source};
use crate::error::Result;
use crate::methods::{self, Method};
use crate::results::Record;
use crate::settings::Experiment;
use frosh::Evaluation;

pub(super) fn run(lab: &mut Lab<'_>, ground: &Ground, (map, curve): (bool, bool)) -> Result<()> {
    let (n, d) = (ground.base.rows(), ground.base.dim());
    let long = lab.settings.bits(Experiment::PrecisionRecall);
    let mut lengths = if map { lab.settings.bits(Experiment::Bits) } else { Vec::new() };
    lengths.extend(if curve { long.clone() } else { Vec::new() });
    lengths.sort_unstable();
    lengths.dedup();
    let tasks: Vec<_> = (0..lab.settings.repeats()).map(|r| lab.task(n, d, r)).collect();
    // A cell for each learner: one code length, or all, or even several methods, as it serves them.
    for given in methods::learners(&tasks[0], &Method::ALL, &lengths)? {
        let given = given.gives();
        let (mut names, mut group): (Vec<Method>, Vec<usize>) = given.into_iter().unzip();
        names.dedup();
        group.sort_unstable();
        group.dedup();
        let what = match (map, curve && group.iter().any(|bits| long.contains(bits))) {
            (true, true) => "bits and returned",
            (true, false) => "bits",
            _ => "returned",
        };
        let whose: Vec<&str> = names.iter().map(|method| method.name()).collect();
        let long_name: Vec<String> = group.iter().map(ToString::to_string).collect();
        let (whose, length) = (whose.join(", "), long_name.join(", "));
        let name = format!("{what} {} {whose} {length} bits", ground.name);
        let limit = lab.settings.cell_seconds;
        lab.cell(&name, 1, limit, |repeat| {
            let mut records = Vec::new();
            for mut learner in methods::learners(&tasks[repeat as usize], &names, &group)? {
                let (sketch_rows, block_rows) = learner.sizes();
                methods::learn(learner.as_mut(), &ground.base)?;
                for (method, bits) in learner.gives() {
                    // Without any randomness, another repeat would measure the same.
                    if method == Method::Pca && repeat > 0 {
                        continue;
                    }
                    let encoder = learner.fit(method, bits)?;
                    let base = encoder.encode(ground.base.view()?)?;
                    let queries = encoder.encode(ground.queries.view()?)?;
                    let result = ground.measure(&queries, &base)?;
                    let record = Record {
                        data: ground.name.clone(),
                        method: method.name().into(),
                        rows: n,
                        dim: d as u64,
                        sketch_rows,
                        block_rows,
                        bits: Some(bits as u32),
                        repeat,
                        map: Some(result.map()),
                        ..Record::default()
                    };
                    if curve && long.contains(&bits) {
                        records.push(Record {
                            experiment: "precision-recall".into(),
                            returned: Some(by_number(&result)),
                            ..record.clone()
                        });
                    }
                    if map {
                        records.push(Record { experiment: "bits".into(), ..record });
                    }
                }
            }
            Ok(records)
        })?;
    }
    Ok(())
}

/// The precision-recall curve by the number of returned rows.
fn by_number(result: &Evaluation) -> Vec<[f64; 3]> {
    let point = |k| Some([k as f64, result.relevant_recall(k)?, result.precision(k)?]);
    numbers(result.base()).into_iter().filter_map(point).collect()
}

/// Numbers of returned rows: from 1 to all `n`, each at most 5 % (or 1) above the one before.
fn numbers(n: usize) -> Vec<usize> {
    std::iter::successors((n > 0).then_some(1), |k| (*k < n).then(|| (k + (k / 20).max(1)).min(n)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use frosh::{Config, Rows, Sketcher, Truth};

    #[test]
    fn numbers_grow_from_one_row_to_all() {
        assert!(numbers(0).is_empty());
        assert_eq!(numbers(3), [1, 2, 3]);
        let all = numbers(60_000);
        assert_eq!((all[0], all[all.len() - 1]), (1, 60_000));
        assert!(all.len() < 220, "{}", all.len());
        let close = |w: &[usize]| w[0] < w[1] && w[1] - w[0] <= (w[0] / 20).max(1);
        assert!(all.windows(2).all(close));
    }

    /// Slow, from the definition: the first k of a ranking whose ties are shuffled, averaged over many shuffles.
    #[test]
    fn a_curve_is_the_mean_over_random_orders_of_ties() {
        let (n, dim, bits) = (120, 6, 4);
        let mut random = crate::random::Random::new(3, 1);
        let mut values = vec![0.0; (n + 8) * dim];
        random.normals(&mut values);
        let rows = Rows::new(&values, dim).unwrap();
        let mut sketcher = Sketcher::new(Config::new(dim).sketch_rows(2 * bits)).unwrap();
        sketcher.push(rows).unwrap();
        let hasher = sketcher.finish().hasher(bits).unwrap();
        let (queries, base) = (rows.slice(n..n + 8), rows.slice(0..n));
        let (queries, base) = (hasher.encode(queries).unwrap(), hasher.encode(base).unwrap());
        // Any lists do as the truth.
        let near: Vec<Vec<u64>> = (0..8).map(|_| random.choose(12, n as u64)).collect();
        let truth = Truth::Nearest(12);
        let result = Evaluation::by_neighbours(&queries, &base, truth, &near).unwrap();
        let curve = by_number(&result);
        assert_eq!(curve.last().unwrap()[..2], [n as f64, 1.0]);
        const SHUFFLES: usize = 4000;
        let mut hits = vec![0.0; n + 1];
        for (q, near) in near.iter().enumerate() {
            let distance = |row: &u64| queries.distance(q, &base, *row as usize).unwrap();
            let mut order: Vec<u64> = (0..n as u64).collect();
            for _ in 0..SHUFFLES {
                for i in (1..n).rev() {
                    order.swap(i, random.below(i as u64 + 1) as usize);
                }
                order.sort_by_key(distance);
                let mut found = 0.0;
                for (k, row) in order.iter().enumerate() {
                    found += f64::from(near.contains(row));
                    hits[k + 1] += found / (8 * SHUFFLES) as f64;
                }
            }
        }
        for [k, recall, precision] in curve {
            let want = hits[k as usize];
            assert!((recall - want / 12.0).abs() < 0.003, "recall of {k}: {recall}, {want} hits");
            assert!((precision - want / k).abs() < 0.01, "precision of {k}: {precision}, {want}");
        }
    }
}
