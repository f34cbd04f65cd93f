//! Every target on its kept corpus: what was ever interesting, or ever broke something, holds.

use std::path::Path;

#[test]
fn every_target_holds_on_its_corpus() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (name, target) in fuzz::TARGETS {
        let entries = std::fs::read_dir(folder.join(name)).unwrap_or_else(|error| panic!("corpus/{name}: {error}"));
        let mut played = 0;
        for entry in entries {
            let path = entry.expect("an entry").path();
            let bytes = std::fs::read(&path).expect("a file");
            let held = std::panic::catch_unwind(|| target(&bytes));
            assert!(held.is_ok(), "{} does not hold any more", path.display());
            played += 1;
        }
        assert!(played > 0, "corpus/{name} is empty");
    }
}

/// A folder for a target that is gone proves nothing.
#[test]
fn every_folder_is_a_target() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let name = entry.expect("an entry").file_name().into_string().expect("a name");
        assert!(fuzz::target(&name).is_some(), "corpus/{name}");
    }
}
