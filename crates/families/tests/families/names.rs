//! What kinds of families are called beside the built-in ones.

use std::collections::HashSet;

use families::Settings;
use kinds::fields::text;

/// A client looks for plurals and singulars of all groups before it looks for short names, so that `kubectl get deploy` would mean
/// whatever has that for a singular.
#[test]
fn no_kind_of_a_family_takes_a_short_name_of_a_built_in_one() {
    let short: HashSet<&str> =
        kinds::builtin::builtin().iter().flat_map(|resource| resource.short_names.iter().copied()).collect();
    assert!(short.contains("deploy"));
    let mut looked_at = 0;
    for family in families::all(&Settings::default()).iter() {
        for definition in (family.manifest().definitions)() {
            let names = &definition["spec"]["names"];
            for name in ["plural", "singular"].map(|field| text(names, &[field])) {
                assert!(!short.contains(name), "{}: {name:?} is how a built-in kind is called", text(names, &["kind"]));
                looked_at += 1;
            }
        }
    }
    assert!(looked_at > 60, "{looked_at}");
}
