//! The choice of several columns of a table, each of which is one dimension of the vectors.

use crate::error::{Fault, Hint};
use std::str::FromStr;

/// Columns of a table, each of which is one dimension of the vectors, by name or by position.
///
/// It is parsed from a list with commas: a name, a pattern of names such as `f*`, a position or a range of
/// positions such as `2-101`. Positions count from 0, and a range includes its end. The columns are taken in
/// the order of the file.
///
/// ```
/// use frosh_io::{Columns, Options, Vectors};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.csv");
/// # std::fs::write(&path, "id,text,f0,f1\n7,a,1,2\n8,b,3,4\n").unwrap();
/// let columns: Columns = "f*".parse()?;
/// let options = Options { columns: Some(columns), ..Options::default() };
/// assert_eq!(Vectors::open(&[&path], &options)?.dim(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    text: String,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Name(glob::Pattern),
    Positions(usize, usize),
}

impl FromStr for Columns {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Result<Vec<Part>, String> =
            text.split(',').map(|part| Part::parse(part.trim())).collect();
        Ok(Self { text: text.to_owned(), parts: parts? })
    }
}

impl std::fmt::Display for Columns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl Part {
    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("a column has no name; expected names, patterns or positions".into());
        }
        let (from, to) = text.split_once('-').unwrap_or((text, text));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if digits(from) && digits(to) {
            return match (from.parse(), to.parse()) {
                (Ok(from), Ok(to)) if from <= to => Ok(Part::Positions(from, to)),
                _ => Err(format!("{text:?} is not a range of positions")),
            };
        }
        let pattern = glob::Pattern::new(text);
        pattern.map(Part::Name).map_err(|e| format!("{text:?} is not a valid pattern: {e}"))
    }
}

impl Columns {
    /// Whether it names columns, so that the file must have names.
    pub(crate) fn needs_names(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Name(_)))
    }

    /// The numbers of the chosen columns among `count` columns, ascending. `name` gives the name of each.
    pub(crate) fn choose<'a>(
        &self,
        count: usize,
        name: impl Fn(usize) -> &'a str,
    ) -> Result<Vec<usize>, Fault> {
        let mut chosen = vec![false; count];
        for part in &self.parts {
            let mut found = false;
            match part {
                Part::Positions(from, to) => {
                    if *to >= count {
                        let why = format!(
                            "has {count} columns (0 to {}), but column {to} is chosen",
                            count.saturating_sub(1)
                        );
                        return Err(Fault::file(why).hint(Hint::ChooseColumns));
                    }
                    chosen[*from..=*to].fill(true);
                    found = true;
                }
                Part::Name(pattern) => {
                    for (i, chosen) in chosen.iter_mut().enumerate() {
                        if pattern.matches(name(i)) {
                            *chosen = true;
                            found = true;
                        }
                    }
                }
            }
            if let (false, Part::Name(pattern)) = (found, part) {
                const SHOWN: usize = 40;
                let mut names: Vec<String> =
                    (0..count.min(SHOWN)).map(|i| format!("{:?}", name(i))).collect();
                if count > SHOWN {
                    names.push(format!("and {} more", count - SHOWN));
                }
                let why =
                    format!("has no column {:?}; columns: {}", pattern.as_str(), names.join(", "));
                return Err(Fault::file(why).hint(Hint::ChooseColumns));
            }
        }
        Ok((0..count).filter(|i| chosen[*i]).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_chosen_in_the_order_of_the_file() {
        let names = ["id", "f10", "text", "f2", "g"];
        let choose = |text: &str| {
            let columns: Columns = text.parse().unwrap();
            columns.choose(names.len(), |i| names[i])
        };
        for (text, wanted) in [
            ("f*", vec![1, 3]),
            ("f2,f10", vec![1, 3]),
            ("g, 0-1", vec![0, 1, 4]),
            ("2", vec![2]),
            ("*", vec![0, 1, 2, 3, 4]),
            ("[fg]*", vec![1, 3, 4]),
        ] {
            assert_eq!(choose(text).unwrap(), wanted, "{text}");
        }
        for text in ["h*", "f*,h", "5", "0-5", "0-99999999999"] {
            let error = choose(text).unwrap_err().at(std::path::Path::new("f"));
            assert_eq!(error.hint(), Some(Hint::ChooseColumns), "{error}");
        }
        for text in ["", "a,,b", "3-1", "[a", "1-99999999999999999999999"] {
            assert!(text.parse::<Columns>().is_err(), "{text}");
        }
        // Not positions, but names.
        assert!("f-1,-1,1-".parse::<Columns>().unwrap().needs_names());
        assert!(!"1,2-3".parse::<Columns>().unwrap().needs_names());
    }
}
