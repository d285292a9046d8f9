//! Makes ids of what a file holds: all of one type, none of them null.

use super::{IdRule, IdType, Ids, MAX_TEXT, Names};
use crate::error::{Hint, Reason};
use crate::text::quoted;

/// An id as a file has it.
pub(crate) enum Raw<'a> {
    Null,
    Number(i128),
    /// Text of a format that knows numbers too.
    Text(&'a [u8]),
    /// Text of a format that knows only text.
    Untyped(&'a [u8]),
    /// Something that is no id: what it is.
    Other(&'a str),
}

/// Takes the ids of a stream.
pub(crate) struct IdSink {
    rule: IdRule,
    /// What messages call an id: its column, if there is one.
    what: String,
    /// The type of the ids so far.
    kind: Option<IdType>,
    ids: Ids,
}

impl IdSink {
    pub(crate) fn new(rule: IdRule, column: Option<&str>) -> Self {
        let what = column.map_or("the id".into(), |name| format!("column {name:?}"));
        Self { rule, what, kind: None, ids: Ids::Numbers(Vec::new()) }
    }

    /// The ids since the last call.
    pub(crate) fn take(&mut self) -> Ids {
        let empty = match self.kind {
            Some(IdType::Text) => Ids::Names(Names::default()),
            _ => Ids::Numbers(Vec::new()),
        };
        std::mem::replace(&mut self.ids, empty)
    }

    pub(crate) fn push(&mut self, raw: Raw<'_>) -> Result<(), Reason> {
        let own = match &raw {
            Raw::Null => {
                return Err(format!("{} is null, expected a number or text", self.what).into());
            }
            Raw::Other(what) => {
                let why = format!("{} is {what}, expected a whole number or text", self.what);
                return Err(why.into());
            }
            Raw::Number(_) => IdType::Number,
            Raw::Text(_) => IdType::Text,
            Raw::Untyped(text) => match (self.rule.untyped, self.kind) {
                (Some(kind), _) | (None, Some(kind)) => kind,
                (None, None) if number(text).is_some() => IdType::Number,
                (None, None) => IdType::Text,
            },
        };
        let kind = self.rule.convert.unwrap_or(own);
        if let Some(before) = self.kind.filter(|before| *before != kind) {
            let why = format!("{} is {}, and those before it are {before}", self.what, show(&raw));
            return Err(Reason::with_hint(why, Hint::TextIds));
        }
        if self.kind.is_none() {
            self.kind = Some(kind);
            self.ids = self.take();
        }
        match (&mut self.ids, &raw) {
            (Ids::Numbers(all), Raw::Number(n)) => {
                let n = u64::try_from(*n).map_err(|_| {
                    format!(
                        "{} is {n}, expected a whole number from 0 to 2^64 - 1, or text",
                        self.what
                    )
                })?;
                all.push(n);
            }
            (Ids::Numbers(all), Raw::Text(text) | Raw::Untyped(text)) => {
                let Some(n) = number(text) else {
                    let why = format!("{} is {}, expected a whole number", self.what, quoted(text));
                    // Text among the numbers of a table, where nothing else says that it should be one.
                    let hint = self.rule.convert.is_none() && !text.is_empty();
                    return Err(match hint {
                        true => Reason::with_hint(why, Hint::TextIds),
                        false => why.into(),
                    });
                };
                all.push(n);
            }
            (Ids::Names(all), Raw::Number(n)) => all.push(&n.to_string()),
            (Ids::Names(all), Raw::Text(text) | Raw::Untyped(text)) => {
                let name = std::str::from_utf8(text).map_err(|_| {
                    format!("{} is {}, which is not UTF-8", self.what, quoted(text))
                })?;
                if !(1..=MAX_TEXT).contains(&name.len()) {
                    let why = match name.len() {
                        0 => format!("{} is empty, expected an id", self.what),
                        n => format!("{} has {n} bytes, expected at most {MAX_TEXT}", self.what),
                    };
                    return Err(why.into());
                }
                all.push(name);
            }
            (_, Raw::Null | Raw::Other(_)) => {}
        }
        Ok(())
    }
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text.trim_ascii()).ok()?.parse().ok()
}

fn show(raw: &Raw<'_>) -> String {
    match raw {
        Raw::Number(n) => format!("the number {n}"),
        Raw::Text(text) | Raw::Untyped(text) => format!("the text {}", quoted(text)),
        Raw::Null => "null".into(),
        Raw::Other(what) => (*what).into(),
    }
}
