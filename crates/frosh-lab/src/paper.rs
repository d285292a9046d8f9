//! What the paper prints as numbers: Table 2, the seconds of training, and which data sets those were.
//!
//! The paper's other results are figures, of which only relations are known (`claims/`). Its times were taken in
//! MATLAB on another machine, so only their ratios to FROSH's are compared with ours.

/// One of the paper's data sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Set {
    Cifar,
    Mnist,
    Gist,
    Flickr,
}

/// The code lengths of Table 2.
pub(crate) const BITS: [u32; 3] = [32, 64, 128];

/// The name's end of made-up data that stands in for a set.
const STAND_IN: &str = "-stand-in";

/// Table 2: seconds for 32, 64 and 128 bits.
const TABLE: [(Set, &str, [f64; 3]); 20] = [
    (Set::Cifar, "SGH", [7.83, 11.35, 19.49]),
    (Set::Cifar, "OCH-style", [26.89, 26.95, 27.49]),
    (Set::Cifar, "OSH", [7.78, 11.88, 22.09]),
    (Set::Cifar, "FROSH", [0.63, 0.94, 2.11]),
    (Set::Cifar, "DFROSH", [0.13, 0.20, 0.44]),
    (Set::Mnist, "SGH", [10.47, 14.59, 23.47]),
    (Set::Mnist, "OCH-style", [40.45, 40.49, 41.10]),
    (Set::Mnist, "OSH", [13.25, 18.93, 30.75]),
    (Set::Mnist, "FROSH", [1.17, 1.49, 2.56]),
    (Set::Mnist, "DFROSH", [0.24, 0.31, 0.53]),
    (Set::Gist, "SGH", [231.0, 275.0, 290.0]),
    (Set::Gist, "OCH-style", [1042.0, 1089.0, 1192.0]),
    (Set::Gist, "OSH", [228.0, 331.0, 520.0]),
    (Set::Gist, "FROSH", [21.0, 27.0, 45.0]),
    (Set::Gist, "DFROSH", [4.3, 5.6, 9.7]),
    (Set::Flickr, "SGH", [3032.0, 3541.0, 4903.0]),
    (Set::Flickr, "OCH-style", [4981.0, 5300.0, 5441.0]),
    (Set::Flickr, "OSH", [679.0, 1283.0, 2570.0]),
    (Set::Flickr, "FROSH", [72.0, 92.0, 134.0]),
    (Set::Flickr, "DFROSH", [15.6, 19.4, 29.2]),
];

/// Which of the paper's sets a record's data is, or stands in for.
pub(crate) fn set(data: &str) -> Option<Set> {
    let starts = |s| data.starts_with(s);
    if starts("cifar10") {
        Some(Set::Cifar)
    } else if starts("mnist") {
        Some(Set::Mnist)
    } else if starts("gist1m") {
        Some(Set::Gist)
    } else if starts("flickr25600") {
        Some(Set::Flickr)
    } else {
        None
    }
}

/// Whether data was made up in a set's place.
pub(crate) fn is_stand_in(data: &str) -> bool {
    data.ends_with(STAND_IN)
}

/// A data set's name as the page prints it (not escaped).
pub(crate) fn label(data: &str) -> String {
    let bare = data.strip_suffix(STAND_IN).unwrap_or(data);
    let name = match bare {
        "synthetic" => "synthetic",
        "cifar10-gist" | "cifar10-gist512" => "CIFAR-10 GIST",
        "mnist" => "MNIST",
        "gist1m" => "GIST-1M",
        "flickr25600" => "FLICKR-25600",
        other => other,
    };
    if is_stand_in(data) { format!("{name} (stand-in)") } else { name.into() }
}

/// The paper's seconds.
pub(crate) fn seconds(set: Set, method: &str, bits: u32) -> Option<f64> {
    let column = BITS.iter().position(|&b| b == bits)?;
    TABLE.iter().find(|row| row.0 == set && row.1 == method).map(|row| row.2[column])
}

/// The smallest and the largest ratio of two methods' times in the paper's own table.
pub(crate) fn ratios(slower: &str, faster: &str) -> (f64, f64) {
    let mut range = (f64::INFINITY, 0.0f64);
    for set in [Set::Cifar, Set::Mnist, Set::Gist, Set::Flickr] {
        for bits in BITS {
            if let (Some(a), Some(b)) = (seconds(set, slower, bits), seconds(set, faster, bits)) {
                range = (range.0.min(a / b), range.1.max(a / b));
            }
        }
    }
    range
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_the_papers() {
        assert_eq!(seconds(Set::Gist, "OSH", 128), Some(520.0));
        assert_eq!(seconds(Set::Gist, "LSH", 128), None);
        assert_eq!(seconds(Set::Gist, "OSH", 16), None);
        let (low, high) = ratios("OSH", "FROSH");
        assert!((9.4..9.5).contains(&low) && (19.1..19.2).contains(&high));
        assert_eq!(set("gist1m-stand-in"), Some(Set::Gist));
        assert_eq!(label("flickr25600-stand-in"), "FLICKR-25600 (stand-in)");
    }
}
