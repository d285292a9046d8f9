//! The tree of runs, for every order in which they become complete.

use super::Tree;
use crate::pool::Pool;
use crate::rows::Rows;
use crate::sketch::frequent_directions::FrequentDirections;
use crate::sketch::{Config, ShrinkIndex, Sketch, Sketcher};
use std::sync::Arc;

/// A sketch of one row, with the number of the run in its mean.
fn run(number: u64) -> Sketch {
    let mut sketcher = Sketcher::new(Config::new(1).sketch_rows(2).reservoir_rows(0)).unwrap();
    sketcher.push(Rows::new(&[number as f32], 1).unwrap()).unwrap();
    sketcher.finish()
}

#[test]
fn the_tree_does_not_depend_on_the_order_of_runs() {
    let mut work = FrequentDirections::new(1, 2, ShrinkIndex::default());
    let mut state = 1u32;
    for runs in 1..20u64 {
        let mut wanted = None;
        for _ in 0..10 {
            let mut order: Vec<u64> = (0..runs).collect();
            for i in (1..order.len()).rev() {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                order.swap(i, (state >> 8) as usize % (i + 1));
            }
            let mut tree = Tree::of(0, Vec::new());
            let mut complete = vec![false; runs as usize];
            for number in order {
                let (mut start, mut level, mut sketch) = (number, 0, run(number));
                while let Some((older, newer)) = tree.pair_or_keep(start, level, sketch) {
                    assert!(older.mean() < newer.mean(), "the older part comes first");
                    let older = Arc::unwrap_or_clone(older);
                    sketch = older.followed_by(&Pool::ONE, &newer, &mut work);
                    start &= !(1 << level);
                    level += 1;
                }
                complete[number as usize] = true;
                // The runs before the first gap, as a binary counter.
                let leading = complete.iter().take_while(|done| **done).count() as u64;
                let (counted, parts) = tree.prefix();
                assert_eq!(counted, leading);
                assert_eq!(parts.len() as u32, leading.count_ones());
                assert!(parts.windows(2).all(|pair| pair[0].rows() > pair[1].rows()));
            }
            let (counted, parts) = tree.into_prefix();
            assert_eq!(counted, runs);
            let bytes: Vec<Vec<u8>> = parts.iter().map(Sketch::to_bytes).collect();
            assert_eq!(*wanted.get_or_insert_with(|| bytes.clone()), bytes);
            // It goes on from a state.
            assert_eq!(Tree::of(runs, parts).prefix().0, runs);
        }
    }
}
