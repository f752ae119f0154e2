//! How each type of value stands in a spec.

use std::path::Path;

use toml::Spanned;
use toml::de::DeValue;

use crate::endpoint::Endpoint;
use crate::host::HostPattern;
use crate::internet::InternetHost;
use crate::invalid::Invalid;
use crate::lan::LanHost;
use crate::name::{Name, ToolName};
use crate::number::{Port, Rate};
use crate::path::SpecPath;
use crate::print::{NotText, quoted};
use crate::program::Program;
use crate::spec::Version;
use crate::upstream::Upstream;

/// Entries of a list at most.
pub(crate) const MAX_ENTRIES: usize = 1000;

/// What is wrong with a value.
pub(crate) enum Fault {
    /// The type it has.
    WrongType(&'static str),
    /// The type an entry has, and the one it should have.
    WrongEntry(&'static str, &'static str),
    TooMany(usize),
    Invalid(Invalid),
}

/// A fault and the bytes of the spec it is in.
pub(crate) type Found = (Fault, std::ops::Range<usize>);

/// The value of a key.
pub(crate) trait Value: Sized {
    /// In words, with its article.
    const KIND: &'static str;

    /// Reads it, or collects what is wrong.
    fn read(value: &Spanned<DeValue<'_>>, faults: &mut Vec<Found>) -> Option<Self>;

    /// Whether it says anything.
    fn is_given(&self) -> bool;

    /// As TOML, in one piece for each entry; none where it isn't given.
    fn written(&self) -> Result<Option<Written>, NotText>;

    /// Takes the place of a spec's value, where it is given.
    fn replace(self, value: &mut Self, adds: bool);
}

/// A value as TOML.
pub(crate) enum Written {
    One(String),
    List(Vec<String>),
}

/// One entry of a list, or the only one of a key.
pub(crate) trait Entry: Sized + PartialEq {
    const ONE: &'static str;
    const LIST: &'static str;

    fn parse(value: &DeValue<'_>) -> Result<Self, Fault>;
    fn written(&self) -> Result<String, NotText>;
}

impl<T: Entry> Value for Vec<T> {
    const KIND: &'static str = T::LIST;

    fn read(value: &Spanned<DeValue<'_>>, faults: &mut Vec<Found>) -> Option<Self> {
        let DeValue::Array(entries) = value.get_ref() else {
            faults.push((Fault::WrongType(kind_of(value.get_ref())), value.span()));
            return None;
        };
        if entries.len() > MAX_ENTRIES {
            faults.push((Fault::TooMany(entries.len()), value.span()));
            return None;
        }
        let mut list = Vec::new();
        let before = faults.len();
        for entry in entries.iter() {
            match T::parse(entry.get_ref()) {
                Ok(parsed) if list.contains(&parsed) => {}
                Ok(parsed) => list.push(parsed),
                Err(Fault::WrongType(got)) => {
                    faults.push((Fault::WrongEntry(got, T::ONE), entry.span()));
                }
                Err(fault) => faults.push((fault, entry.span())),
            }
        }
        (faults.len() == before).then_some(list)
    }

    fn is_given(&self) -> bool {
        !self.is_empty()
    }

    fn written(&self) -> Result<Option<Written>, NotText> {
        if self.is_empty() {
            return Ok(None);
        }
        let entries: Result<_, _> = self.iter().map(Entry::written).collect();
        Ok(Some(Written::List(entries?)))
    }

    fn replace(self, value: &mut Self, adds: bool) {
        if self.is_empty() {
            return;
        }
        if !adds {
            value.clear();
        }
        for entry in self {
            if !value.contains(&entry) {
                value.push(entry);
            }
        }
    }
}

impl<T: Entry> Value for Option<T> {
    const KIND: &'static str = T::ONE;

    fn read(value: &Spanned<DeValue<'_>>, faults: &mut Vec<Found>) -> Option<Self> {
        match T::parse(value.get_ref()) {
            Ok(parsed) => Some(Some(parsed)),
            Err(fault) => {
                faults.push((fault, value.span()));
                None
            }
        }
    }

    fn is_given(&self) -> bool {
        self.is_some()
    }

    fn written(&self) -> Result<Option<Written>, NotText> {
        let one = self.as_ref().map(Entry::written).transpose()?;
        Ok(one.map(Written::One))
    }

    fn replace(self, value: &mut Self, _adds: bool) {
        if self.is_some() {
            *value = self;
        }
    }
}

impl Value for Version {
    const KIND: &'static str = "a number";

    fn read(value: &Spanned<DeValue<'_>>, faults: &mut Vec<Found>) -> Option<Self> {
        let fault = match value.get_ref() {
            DeValue::Integer(number) if (number.as_str(), number.radix()) == ("1", 10) => {
                return Some(Version);
            }
            DeValue::Integer(number) => Fault::Invalid(Invalid::Version(number.to_string())),
            other => Fault::WrongType(kind_of(other)),
        };
        faults.push((fault, value.span()));
        None
    }

    fn is_given(&self) -> bool {
        false
    }

    fn written(&self) -> Result<Option<Written>, NotText> {
        Ok(Some(Written::One("1".into())))
    }

    fn replace(self, _value: &mut Self, _adds: bool) {}
}

/// A TOML value's type, with its article.
pub(crate) fn kind_of(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

fn string<T: std::str::FromStr<Err = Invalid>>(value: &DeValue<'_>) -> Result<T, Fault> {
    match value {
        DeValue::String(text) => text.parse().map_err(Fault::Invalid),
        other => Err(Fault::WrongType(kind_of(other))),
    }
}

fn number<T: TryFrom<i64, Error = Invalid>>(
    value: &DeValue<'_>,
    invalid: fn(String) -> Invalid,
) -> Result<T, Fault> {
    match value {
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_err(|_| invalid(number.to_string()))
            .and_then(T::try_from)
            .map_err(Fault::Invalid),
        other => Err(Fault::WrongType(kind_of(other))),
    }
}

macro_rules! entries {
    ($($type:ty, $one:literal, $list:literal, $parse:expr, $written:expr;)+) => {$(
        impl Entry for $type {
            const ONE: &'static str = $one;
            const LIST: &'static str = $list;

            fn parse(value: &DeValue<'_>) -> Result<Self, Fault> {
                $parse(value)
            }

            fn written(&self) -> Result<String, NotText> {
                $written(self)
            }
        }
    )+};
}

entries! {
    Name, "a name", "a list of names", string, text;
    SpecPath, "a path", "a list of paths", string, |path: &SpecPath| path_text(path.as_path());
    HostPattern, "a host", "a list of hosts", string, text;
    InternetHost, "a host", "a list of hosts", string, text;
    Endpoint, "an endpoint", "a list of endpoints", string, text;
    Upstream, "an upstream", "a list of upstreams", string, text;
    Rate, "a number", "a list of numbers", |value| number(value, Invalid::Rate), plain;
    LanHost, "a host", "a list of hosts", string, text;
    Port, "a port", "a list of ports", |value| number(value, Invalid::Port), plain;
    ToolName, "a name", "a list of names", string, text;
    Program, "a program", "a list of programs", string, |program: &Program| path_text(&program.written());
}

fn text(value: &impl ToString) -> Result<String, NotText> {
    Ok(quoted(&value.to_string()))
}

fn plain(value: &impl ToString) -> Result<String, NotText> {
    Ok(value.to_string())
}

fn path_text(path: &Path) -> Result<String, NotText> {
    path.to_str().map(quoted).ok_or_else(|| NotText(path.into()))
}
