//! The next step after an error of `frosh-io`, in the words and flags of this program.
//!
//! Advice is given only if the verb has the flag, and not to skip bad rows if that was asked for already.

use crate::args::Cli;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, CommandFactory as _};
use frosh_io::Hint;

/// The verb that runs, and so the flags that advice may name.
pub(crate) struct Flags {
    verb: Command,
    /// Names of the flags that were given.
    given: Vec<String>,
}

impl Flags {
    /// The flags of the verb that the arguments name.
    pub(crate) fn of_verb(arguments: &ArgMatches) -> Self {
        let (mut verb, mut arguments) = (Cli::command(), arguments);
        while let Some((name, inner)) = arguments.subcommand() {
            let Some(found) = verb.find_subcommand(name).cloned() else { break };
            (verb, arguments) = (found, inner);
        }
        let on_the_command_line =
            |id: &clap::Id| arguments.value_source(id.as_str()) == Some(ValueSource::CommandLine);
        let given = verb.get_arguments().filter(|argument| on_the_command_line(argument.get_id()));
        let given = given.filter_map(|argument| argument.get_long()).map(str::to_owned).collect();
        Self { verb, given }
    }

    fn has(&self, flag: &str) -> bool {
        self.verb.get_arguments().any(|argument| argument.get_long() == Some(flag))
    }

    /// What to do after an error, if there is something this verb has a flag for.
    pub(crate) fn advice(&self, error: &anyhow::Error) -> Option<&'static str> {
        let hint = error.chain().find_map(hint)?;
        let (flags, advice) = words(hint)?;
        // To skip bad rows again would not help. Other flags may be given with another value.
        if hint == Hint::SkipBadRows && self.given.iter().any(|flag| flags.contains(&&**flag)) {
            return None;
        }
        flags.iter().all(|flag| self.has(flag)).then_some(advice)
    }
}

fn hint(error: &(dyn std::error::Error + 'static)) -> Option<Hint> {
    error.downcast_ref::<frosh_io::Error>()?.hint()
}

/// The flags that the advice for a hint names, and the advice.
fn words(hint: Hint) -> Option<(&'static [&'static str], &'static str)> {
    Some(match hint {
        Hint::SetDimension => (&["dim"], "set the dimension with --dim"),
        Hint::SetDimensionOrFormat => {
            (&["dim", "format"], "set the dimension with --dim, or another format with --format")
        }
        Hint::CheckDimension => (&["dim"], "check --dim"),
        Hint::ChooseFormat => (&["format"], "set the format with --format"),
        Hint::ChooseColumn => (&["column"], "choose one with --column"),
        Hint::ChooseColumns => (
            &["columns"],
            "choose the columns of the dimensions with --columns, such as 'f*' or 2-101",
        ),
        Hint::OmitColumns => (&["columns"], "leave out --columns"),
        Hint::OmitColumn => (&["column"], "leave out --column"),
        Hint::ChooseDataset => (&["dataset"], "choose one with --dataset"),
        Hint::OmitDataset => (&["dataset"], "leave out --dataset"),
        Hint::SkipBadRows => (&["skip-bad"], "--skip-bad leaves such rows out"),
        Hint::ChooseIdColumn => (&["id-column"], "choose one with --id-column"),
        Hint::TextIds => (&["id-type"], "take all ids as text with --id-type text"),
        Hint::ChooseOutputFormat => (&["to"], "choose the format with --to"),
        Hint::ChooseOutputType => (&["type"], "choose another type with --type, or another format"),
        // `Hint` is open to additions.
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice(arguments: &str, hint: Hint) -> Option<&'static str> {
        let arguments = Cli::command().get_matches_from(arguments.split(' '));
        let error = frosh_io::Error::Usage { why: "no".into(), hint: Some(hint) };
        let error = anyhow::Error::from(error).context("while reading");
        Flags::of_verb(&arguments).advice(&error)
    }

    #[test]
    fn advice_names_only_flags_that_the_verb_has() {
        let skip = Some("--skip-bad leaves such rows out");
        assert_eq!(advice("frosh train a.npy -o x", Hint::SkipBadRows), skip);
        assert_eq!(advice("frosh convert a.npy b.npy", Hint::SkipBadRows), skip);
        assert_eq!(advice("frosh encode m a.npy -o x", Hint::SkipBadRows), skip);
        assert_eq!(advice("frosh index build m a.npy -o x", Hint::SkipBadRows), skip);
        assert_eq!(advice("frosh index build m a.npy -o x --skip-bad", Hint::SkipBadRows), None);
        assert_eq!(advice("frosh merge a b -o x", Hint::SkipBadRows), None);
        let column = Some("choose one with --column");
        assert_eq!(advice("frosh index build m a.npy -o x", Hint::ChooseColumn), column);
        assert_eq!(advice("frosh merge a b -o x", Hint::ChooseColumn), None);
        assert_eq!(advice("frosh train a.npy -o x", Hint::ChooseOutputFormat), None);
    }

    #[test]
    fn advice_names_the_flags_that_are_looked_for() {
        let cli = Cli::command();
        let convert =
            Flags { verb: cli.find_subcommand("convert").unwrap().clone(), given: Vec::new() };
        for hint in [
            Hint::SetDimension,
            Hint::SetDimensionOrFormat,
            Hint::CheckDimension,
            Hint::ChooseFormat,
            Hint::ChooseColumn,
            Hint::ChooseColumns,
            Hint::OmitColumns,
            Hint::OmitColumn,
            Hint::ChooseDataset,
            Hint::OmitDataset,
            Hint::SkipBadRows,
            Hint::ChooseOutputFormat,
            Hint::ChooseOutputType,
        ] {
            let (flags, advice) = words(hint).unwrap();
            let words = advice.split([' ', ',']);
            let named: Vec<_> = words.filter_map(|word| word.strip_prefix("--")).collect();
            assert_eq!(named, flags, "{hint:?}");
            assert!(flags.iter().all(|flag| convert.has(flag)), "{hint:?}");
        }
    }
}
