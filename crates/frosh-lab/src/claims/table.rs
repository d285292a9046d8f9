//! The claims of Section 5, each with the numbers that stand for its words. The comment on a bound says why it is that.

use super::Rule;
use super::check::{AREA, Of, Test};
use crate::paper::{self, Set};
use crate::results::Record;

const ERROR: fn(&Record) -> Option<f64> = |r| r.relative_error;
const SECONDS: fn(&Record) -> Option<f64> = |r| r.seconds.filter(|s| *s > 0.0);
const ALL: fn(&Record) -> bool = |_| true;
const SKETCH_ERROR: Of = Of("sketch", ERROR, ALL);
const SKETCH_TIME: Of = Of("sketch", SECONDS, ALL);
const OVER_L: fn(&Record) -> bool = |r| r.sweep.as_deref() == Some("l");
const OVER_N: fn(&Record) -> bool = |r| r.sweep.as_deref() == Some("n");
const OVER_D: fn(&Record) -> bool = |r| r.sweep.as_deref() == Some("d");
const FLICKR: fn(&Record) -> bool = |r| paper::set(&r.data) == Some(Set::Flickr);
const NOT_FLICKR: fn(&Record) -> bool = |r| paper::set(&r.data).is_some_and(|s| s != Set::Flickr);
const ROUNDS: Of = Of("rounds", |r| r.map, ALL);
const BITS: Of = Of("bits", |r| r.map, ALL);
const TRAINING: Of = Of("train-time", SECONDS, ALL);

const BOTH: &[&str] = &["FD", "FFD"];
const SKETCHED: &[&str] = &["OSH", "FROSH", "DFROSH"];
/// Methods of the paper that learn.
const LEARNING: &[&str] = &["OSH", "FROSH", "DFROSH", "SGH", "OCH-style"];
/// What the paper compares; PCA and its rotations are ours.
const COMPARED: &[&str] = &["LSH", "OSH", "FROSH", "DFROSH", "SGH", "OCH-style"];

const ABOVE_1: (f64, f64) = (1.0 + f64::EPSILON, f64::INFINITY);
const BELOW_1: (f64, f64) = (0.0, 1.0 - f64::EPSILON);
/// MAP "as accurate", "comparable": 95 % of the other's, which is about what repeats differ by on small sets.
const AS_ACCURATE: (f64, f64) = (0.95, f64::INFINITY);
/// The largest step against a trend of errors that repeats may explain.
const WOBBLE: f64 = 1.05;
/// Slopes that count as linear; costs that do not grow make small cells flatter.
const LINEAR: (f64, f64) = (0.8, 1.2);

const COMPRESSION: &str = "Compression adds an error of its own, which falls as sqrt(m/(n q)) (q rows from each \
    block of m) and which FD does not have: where n/m is small it outweighs FD’s error.";
const FEW_BLOCKS: &str = "Probably compression: its error, about sqrt(m/(n q)), comes on top of OSH’s and shows \
    where few blocks of m rows were seen.";
const LONG_CODES: &str = "Probably because LSH gains with every bit, while components beyond the data’s own \
    dimension add little: long codes and flat spectra bring the two together. Without a rotation (--no-rotation), \
    components of small variance get as many bits as large ones, and LSH can do better.";
const OTHER_PROGRAMS: &str = "Our SGH and OCH-style are compiled, where the paper’s programs ran in MATLAB; OCH-style \
    learns from a sample of fixed size, so its time hardly grows with the data.";

#[rustfmt::skip] // A table: one field a line only where it is long.
pub(super) fn rules() -> Vec<Rule> {
    // The sentences on times sum up the paper's own table, so its smallest ratios are the bounds.
    let tenth = paper::ratios("OSH", "FROSH").0;
    let batch = paper::ratios("SGH", "DFROSH").0.min(paper::ratios("OCH-style", "DFROSH").0);
    vec![
        Rule {
            id: "ffd-error-comparable", place: "Section 5.1, Figure 2",
            claim: "FFD’s error is comparable to FD’s.",
            criterion: "FFD’s error is at most {high} times FD’s",
            quantity: "FFD’s error / FD’s",
            test: Test::Ratio(SKETCH_ERROR, &[("FFD", "FD")]),
            // What twice as many rows of sketch would make up for.
            bounds: (0.0, 2.0), why: COMPRESSION,
        },
        Rule {
            id: "ffd-time-lower", place: "Section 5.1, Figure 3",
            claim: "FFD takes far less time than FD.",
            criterion: "FD takes at least {low} times FFD’s time",
            quantity: "FD’s time / FFD’s",
            test: Test::Ratio(SKETCH_TIME, &[("FD", "FFD")]),
            // Less would not be worth a second algorithm.
            bounds: (2.0, f64::INFINITY),
            why: "FD shrinks once in l/2 rows and FFD once in m: where m is hardly larger than l, little is saved.",
        },
        Rule {
            id: "error-falls-with-l", place: "Section 5.1, Figure 2 (left)",
            claim: "The error falls gradually as the sketch gets more rows.",
            criterion: "the error falls from the smallest l to the largest, and no step raises it by more than 5 %",
            quantity: "Error at the largest l / at the smallest",
            test: Test::Trend(Of("sketch", ERROR, OVER_L), BOTH, (0.0, WOBBLE)),
            bounds: BELOW_1, why: "",
        },
        Rule {
            id: "insensitive-to-m", place: "Section 5.1, Figure 2",
            claim: "FFD hardly depends on m; a larger m raises its error only slightly.",
            criterion: "the error with the largest m is at most {high} times that with the smallest",
            quantity: "Error at the largest m / at the smallest",
            test: Test::OverM(SKETCH_ERROR),
            bounds: (0.0, 1.5),
            why: "The part of the error that compression adds grows as sqrt(m/(n q)): eight times m, up to 2.8 times \
                the error.",
        },
        Rule {
            id: "larger-m-faster", place: "Section 5.1, Figure 3",
            claim: "A larger m makes FFD faster still.",
            criterion: "the time with the largest m is at most {high} of that with the smallest",
            quantity: "Time at the largest m / at the smallest",
            test: Test::OverM(SKETCH_TIME),
            // A tenth is more than times vary between repeats.
            bounds: (0.0, 0.9),
            why: "A larger m saves shrinks only. Once these are rare, the transform is all that is left, and it does \
                not depend on m.",
        },
        Rule {
            id: "error-falls-with-n", place: "Section 5.1, Figure 2 (middle)",
            claim: "The errors fall gradually with more rows of data.",
            criterion: "the error falls from the smallest n to the largest, and no step raises it by more than 5 %",
            quantity: "Error at the largest n / at the smallest",
            test: Test::Trend(Of("sketch", ERROR, OVER_N), BOTH, (0.0, WOBBLE)),
            bounds: BELOW_1,
            why: "FD’s relative error has no term that falls with n; only compression’s does.",
        },
        Rule {
            id: "time-linear-in-n", place: "Section 5.1, Figure 3 (middle)",
            claim: "Time is linear in the number of rows.",
            criterion: "the slope on logarithmic axes is between {low} and {high}",
            quantity: "Slope of time over n",
            test: Test::Slope(Of("sketch", SECONDS, OVER_N)),
            bounds: LINEAR,
            why: "Probably because work comes in blocks of m rows: where n is a few blocks only, it grows in steps.",
        },
        Rule {
            id: "error-rises-with-d", place: "Section 5.1, Figure 2 (right)",
            claim: "The errors of FD and FFD rise with the dimension.",
            criterion: "the error rises from the smallest d to the largest, and no step lowers it by more than 5 %",
            quantity: "Error at the largest d / at the smallest",
            test: Test::Trend(Of("sketch", ERROR, OVER_D), BOTH, (1.0 / WOBBLE, f64::INFINITY)),
            bounds: ABOVE_1, why: "",
        },
        Rule {
            id: "ffd-slightly-worse-over-d", place: "Section 5.1, Figure 2 (right)",
            claim: "Over all dimensions, FFD is slightly worse than FD.",
            criterion: "FFD’s error is between {low} and {high} times FD’s",
            quantity: "FFD’s error / FD’s",
            test: Test::Ratio(Of("sketch", ERROR, OVER_D), &[("FFD", "FD")]),
            bounds: (1.0, 1.5), why: COMPRESSION,
        },
        Rule {
            id: "time-linear-in-d", place: "Section 5.1, Figure 3 (right)",
            claim: "Time is linear in the dimension.",
            criterion: "the slope on logarithmic axes is between {low} and {high}",
            quantity: "Slope of time over d",
            test: Test::Slope(Of("sketch", SECONDS, OVER_D)),
            bounds: LINEAR,
            why: "As m = tau d grows with d, FFD shrinks less often, and only its transform grows with d; nor does the \
                eigenproblem of a shrink depend on d.",
        },
        Rule {
            id: "frosh-as-accurate-as-osh", place: "Section 5.2, Figure 4",
            claim: "FROSH is as accurate as OSH, on all data sets, after every round.",
            criterion: "FROSH’s MAP is at least {low} of OSH’s",
            quantity: "FROSH’s MAP / OSH’s",
            test: Test::Ratio(ROUNDS, &[("FROSH", "OSH")]),
            bounds: AS_ACCURATE, why: FEW_BLOCKS,
        },
        Rule {
            id: "far-above-lsh", place: "Section 5.2, Figure 4",
            claim: "OSH and FROSH are more accurate than LSH by a large margin, on all data sets.",
            criterion: "their MAP is at least {low} times LSH’s, after every round",
            quantity: "MAP / LSH’s MAP",
            test: Test::Ratio(ROUNDS, &[("OSH", "LSH"), ("FROSH", "LSH")]),
            bounds: (1.2, f64::INFINITY), why: LONG_CODES,
        },
        Rule {
            id: "map-rises-with-rounds", place: "Section 5.2, Figure 4",
            claim: "The MAP of OSH and FROSH rises steadily as more data comes in.",
            criterion: "the last round’s MAP is above the first’s, and no round keeps less than 98 % of the one before",
            quantity: "MAP after the last round / after the first",
            // Queries and random rotations explain 2 %.
            test: Test::Trend(ROUNDS, &["OSH", "FROSH"], (0.98, f64::INFINITY)),
            bounds: ABOVE_1,
            why: "Probably because the first tenth of the rows, which come in no particular order, already gives the \
                principal components: later rounds change MAP by little more than chance.",
        },
        Rule {
            id: "lsh-lowest", place: "Section 5.2, Figure 5",
            claim: "LSH is the least accurate of the compared methods.",
            criterion: "every other method of the paper has a higher MAP",
            quantity: "LSH’s MAP / the lowest other",
            test: Test::Extreme(BITS, &["LSH"], COMPARED, f64::min),
            bounds: BELOW_1, why: LONG_CODES,
        },
        Rule {
            id: "och-best", place: "Section 5.2, Figure 5",
            claim: "OCH is the most accurate in most cases.",
            criterion: "OCH has the highest MAP of the paper’s methods in more than half of the cells",
            quantity: "OCH’s MAP / the highest other",
            test: Test::Mostly(BITS, &["OCH-style"], COMPARED, f64::max),
            bounds: ABOVE_1, why: "",
        },
        Rule {
            id: "frosh-dfrosh-like-osh", place: "Section 5.2, Figure 5",
            claim: "FROSH and DFROSH are about as accurate as OSH at every code length.",
            criterion: "their MAP is at least {low} of OSH’s",
            quantity: "MAP / OSH’s MAP",
            test: Test::Ratio(BITS, &[("FROSH", "OSH"), ("DFROSH", "OSH")]),
            bounds: AS_ACCURATE, why: FEW_BLOCKS,
        },
        Rule {
            id: "above-batch-on-flickr", place: "Section 5.2, Figure 5",
            claim: "On FLICKR-25600, FROSH and DFROSH are more accurate than the batch methods SGH and OCH.",
            criterion: "their MAP is above SGH’s and above OCH’s",
            quantity: "MAP / the batch method’s",
            test: Test::Ratio(Of("bits", |r| r.map, FLICKR), &[
                ("FROSH", "SGH"), ("FROSH", "OCH-style"), ("DFROSH", "SGH"), ("DFROSH", "OCH-style"),
            ]),
            bounds: ABOVE_1, why: "",
        },
        Rule {
            id: "curves-overlap", place: "Section 5.2, Figure 6",
            claim: "The precision-recall curves of OSH, FROSH and DFROSH almost overlap.",
            criterion: "at no recall are two of them further apart than {high} in precision",
            quantity: "Largest difference in precision between two of the three curves",
            test: Test::Gap(SKETCHED),
            // A twentieth of the axis.
            bounds: (0.0, 0.05), why: FEW_BLOCKS,
        },
        Rule {
            id: "curves-competitive", place: "Section 5.2, Figure 6",
            claim: "Those curves are as good as the other methods’, or better.",
            criterion: "the area under each is at least {low} of the largest of LSH’s, SGH’s and OCH’s",
            quantity: "Area / the largest other",
            test: Test::Extreme(AREA, SKETCHED, &["LSH", "SGH", "OCH-style"], f64::max),
            bounds: AS_ACCURATE, why: "",
        },
        Rule {
            id: "och-slowest", place: "Section 5.2, Table 2",
            claim: "OCH takes the most time.",
            criterion: "OCH takes longer than every other method of the paper",
            quantity: "OCH’s time / the slowest other",
            test: Test::Extreme(TRAINING, &["OCH-style"], LEARNING, f64::max),
            bounds: ABOVE_1, why: OTHER_PROGRAMS,
        },
        Rule {
            id: "sgh-like-osh", place: "Section 5.2, Table 2",
            claim: "SGH and OSH take similar time on CIFAR-10, MNIST and GIST-1M.",
            criterion: "SGH takes {low} to {high} times OSH’s time",
            quantity: "SGH’s time / OSH’s",
            test: Test::Ratio(Of("train-time", SECONDS, NOT_FLICKR), &[("SGH", "OSH")]),
            // A factor of two; the paper's own are from 0.56 to 1.01.
            bounds: (0.5, 2.0), why: OTHER_PROGRAMS,
        },
        Rule {
            id: "sgh-slower-on-flickr", place: "Section 5.2, Table 2",
            claim: "On FLICKR-25600, SGH takes much more time than OSH.",
            criterion: "SGH takes at least {low} times OSH’s time",
            quantity: "SGH’s time / OSH’s",
            test: Test::Ratio(Of("train-time", SECONDS, FLICKR), &[("SGH", "OSH")]),
            // The paper's own are from 1.9 to 4.5.
            bounds: (1.5, f64::INFINITY), why: OTHER_PROGRAMS,
        },
        Rule {
            id: "frosh-tenth-of-osh", place: "Section 5.2, Table 2",
            claim: "FROSH takes one-twentieth to one-tenth of OSH’s time.",
            criterion: "OSH takes at least {low} times FROSH’s time, the smallest ratio in the paper’s table; more than \
                20 is more than was claimed",
            quantity: "OSH’s time / FROSH’s",
            test: Test::Ratio(TRAINING, &[("OSH", "FROSH")]),
            bounds: (tenth, f64::INFINITY),
            why: "Our OSH is not the paper’s: it shrinks by an eigenproblem of l rows instead of a singular value \
                decomposition of l by d, which probably leaves FROSH less to save.",
        },
        Rule {
            id: "dfrosh-fifth-of-frosh", place: "Section 5.2, Table 2",
            claim: "DFROSH on five machines takes about one-fifth of FROSH’s time.",
            criterion: "DFROSH takes at most {high} of FROSH’s time",
            quantity: "DFROSH’s time / FROSH’s",
            test: Test::Ratio(TRAINING, &[("DFROSH", "FROSH")]),
            // Less than a fifth is more than was claimed.
            bounds: (0.0, 0.25),
            why: "Probably the merge of five sketches, which FROSH does not have; on short streams it is not small.",
        },
        Rule {
            id: "dfrosh-fastest", place: "Section 5.2, Table 2",
            claim: "DFROSH is the fastest of all.",
            criterion: "every other method of the paper that learns takes longer",
            quantity: "DFROSH’s time / the fastest other",
            test: Test::Extreme(TRAINING, &["DFROSH"], LEARNING, f64::min),
            bounds: BELOW_1, why: "",
        },
        Rule {
            id: "dfrosh-against-batch", place: "Section 5.2, Table 2",
            claim: "DFROSH is 40 to 300 times faster than the batch methods.",
            criterion: "SGH and OCH take at least {low} times DFROSH’s time, the smallest ratio in the paper’s table",
            quantity: "Batch method’s time / DFROSH’s",
            test: Test::Ratio(TRAINING, &[("SGH", "DFROSH"), ("OCH-style", "DFROSH")]),
            bounds: (batch, f64::INFINITY), why: OTHER_PROGRAMS,
        },
        Rule {
            id: "memory", place: "Sections 3.3 and 5.2",
            claim: "FROSH needs one pass and as little memory as OSH, of the order of d l.",
            criterion: "not measured here",
            quantity: "",
            test: Test::Nothing("These experiments do not measure memory. The library’s own tests do: at most 3 l d \
                floats and the sample of rows."),
            bounds: (0.0, 0.0), why: "",
        },
    ]
}
