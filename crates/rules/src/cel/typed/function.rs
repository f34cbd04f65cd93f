//! The functions of Kubernetes' CEL with their types: data/functions.txt, which is written by a program over Kubernetes'
//! own environment (tests/parts/cmd/definitions).

use std::collections::HashMap;
use std::sync::OnceLock;

use super::Type;

/// One way to call a function.
#[derive(Debug)]
pub(super) struct Overload {
    pub id: &'static str,
    pub is_method: bool,
    pub result: Type,
    /// The receiver of a method first.
    pub arguments: Vec<Type>,
    /// How many type variables it has; they are numbered from 0.
    pub variables: u32,
}

#[derive(Debug, Default)]
pub(super) struct Functions {
    pub overloads: HashMap<&'static str, Vec<Overload>>,
    /// Names that mean a type: `int` in `type(x) == int`.
    pub types: HashMap<&'static str, Type>,
}

pub(super) fn functions() -> &'static Functions {
    static FUNCTIONS: OnceLock<Functions> = OnceLock::new();
    FUNCTIONS.get_or_init(|| read(include_str!("../../../data/functions.txt")))
}

fn read(table: &'static str) -> Functions {
    let mut functions = Functions::default();
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&'static str> = line.split(' ').collect();
        match words.as_slice() {
            ["variable", name, ty] => {
                functions.types.insert(name, Reader::default().read(ty));
            }
            [name, id, style, result, arguments @ ..] => {
                let mut reader = Reader::default();
                let result = reader.read(result);
                let arguments = arguments.iter().map(|argument| reader.read(argument)).collect();
                let variables = u32::try_from(reader.variables.len()).unwrap_or(u32::MAX);
                let overload = Overload { id, is_method: *style == "method", result, arguments, variables };
                functions.overloads.entry(name).or_default().push(overload);
            }
            _ => {}
        }
    }
    functions
}

/// Reads types; variables are numbered as they come.
#[derive(Default)]
struct Reader {
    variables: Vec<&'static str>,
}

impl Reader {
    fn read(&mut self, text: &'static str) -> Type {
        let (name, inner) = match text.split_once('(') {
            Some((name, inner)) => (name, inner.strip_suffix(')').unwrap_or(inner)),
            None => (text, ""),
        };
        match name {
            "null_type" => Type::Null,
            "bool" => Type::Bool,
            "int" => Type::Int,
            "uint" => Type::Uint,
            "double" => Type::Double,
            "string" => Type::Text,
            "bytes" => Type::Bytes,
            "google.protobuf.Duration" => Type::Duration,
            "google.protobuf.Timestamp" => Type::Timestamp,
            "list" => Type::list(self.read(inner)),
            "opaque:optional_type" => Type::optional(self.read(inner)),
            "type" if inner.is_empty() => Type::Kind(Type::Dyn.into()),
            "type" => Type::Kind(self.read(inner).into()),
            "map" => match inner.split_once(',') {
                Some((key, value)) => Type::map(self.read(key), self.read(value)),
                None => Type::map(Type::Dyn, Type::Dyn),
            },
            _ => {
                if let Some(library) = name.strip_prefix("struct:") {
                    Type::Library(library)
                } else if let Some(opaque) = name.strip_prefix("opaque:") {
                    Type::Opaque(opaque)
                } else if name.starts_with('<') {
                    let known = self.variables.iter().position(|known| *known == name);
                    let at = known.unwrap_or_else(|| {
                        self.variables.push(name);
                        self.variables.len() - 1
                    });
                    Type::Variable(u32::try_from(at).unwrap_or(u32::MAX))
                } else {
                    Type::Dyn
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read() {
        let functions = functions();
        let show = |name: &str| -> Vec<String> {
            let overloads = functions.overloads.get(name).map_or(&[][..], Vec::as_slice);
            overloads.iter().map(|o| format!("{} {} {:?}", o.id, o.result, o.variables)).collect()
        };
        assert_eq!(show("@in"), ["in_list bool 1", "in_map bool 2"]);
        assert_eq!(show("getQuery"), ["url_get_query map(string, list(string)) 0"]);
        assert_eq!(show("_[?_]").len(), 4);
        assert_eq!(functions.types["int"].to_string(), "type(int)");
        assert!(functions.overloads.len() > 150);
    }
}
