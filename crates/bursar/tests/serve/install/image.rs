//! The image is from scratch: its steps one by one, with the program that is being tested.

use super::*;

fn containerfile() -> String {
    std::fs::read_to_string(at("Containerfile")).expect("a Containerfile")
}

/// The words behind an instruction, for every line that has it.
fn all<'a>(text: &'a str, instruction: &str) -> Vec<&'a str> {
    text.lines().filter_map(|line| line.strip_prefix(instruction)?.strip_prefix(' ')).map(str::trim).collect()
}

/// Runs a program of the image with nothing but the image's libraries, as its loader would.
fn run_in(root: &Path, arguments: &[&str]) -> Said {
    let loader = ["lib64/ld-linux-x86-64.so.2", "lib/ld-linux-aarch64.so.1"].map(|path| root.join(path));
    let Some(loader) = loader.iter().find(|path| path.exists()) else {
        return said(Command::new(root.join("bursar")).args(arguments).env_clear());
    };
    let folders =
        ["lib", "lib64", "usr/lib", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"].map(|path| root.join(path));
    let path = folders.map(|folder| folder.display().to_string()).join(":");
    let mut command = Command::new(loader);
    command.args(["--inhibit-cache", "--library-path", &path]).arg(root.join("bursar")).args(arguments).env_clear();
    said(&mut command)
}

#[test]
fn an_image_from_scratch_has_all_that_the_program_loads_and_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().join("image");
    let done = said(Command::new(at("scripts/image-root")).arg(env!("CARGO_BIN_EXE_bursar")).arg(&root));
    assert!(done.ok, "{}", done.err);
    let told = run_in(&root, &["--version"]);
    assert!(told.ok && told.out.contains(env!("CARGO_PKG_VERSION")), "{told:?}");
    // What is listed is found in the image, and not beside it.
    let libraries = said(Command::new("ldd").arg(root.join("bursar")));
    for path in libraries.out.split_whitespace().filter(|word| word.starts_with('/')) {
        assert!(root.join(path.trim_start_matches('/')).exists(), "{path} is missing");
    }
    assert!(run_in(&root, &["manifests"]).out.contains("kind: Deployment"));
    // Nothing to log in with: no shell, no other program.
    let mut programs = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry")) {
            let is_folder = entry.file_type().expect("a type").is_dir();
            let name = entry.file_name().to_string_lossy().into_owned();
            match is_folder {
                true => folders.push(entry.path()),
                false if name.contains(".so") || entry.path().starts_with(root.join("etc")) => {}
                false => programs.push(name),
            }
        }
    }
    assert_eq!(programs, ["bursar"]);
    let lost = said(Command::new(at("scripts/image-root")).arg("/does/not/exist").arg(folder.path().join("other")));
    assert!(!lost.ok && lost.err.contains("there is no program at"), "{lost:?}");
}

#[test]
fn the_containerfile_takes_steps_that_work() {
    let text = containerfile();
    let runs = all(&text, "RUN");
    let [build, layout] = &runs[..] else { panic!("steps that are not tried: {runs:?}") };
    // The program is built as here, but optimised; the layout is tried above.
    assert_eq!(*build, "cargo build --release --locked --bin bursar");
    assert_eq!(*layout, "scripts/image-root target/release/bursar /image");
    assert!(at("Cargo.lock").exists() && at("scripts/image-root").exists());
    assert_eq!(all(&text, "COPY"), [". .", "--from=build /image /"]);
    let stages = all(&text, "FROM");
    let cargo = std::fs::read_to_string(at("Cargo.toml")).expect("a workspace");
    let needed = cargo.lines().find_map(|line| line.strip_prefix("rust-version = \"")?.strip_suffix('"'));
    assert!(stages[0].contains(&format!("rust:{}-", needed.expect("a version"))), "{stages:?}");
    assert_eq!(stages[1..], ["scratch"]);
    // Who runs it is who the pods say, and the program is what they give arguments to.
    let pod = by_name(objects(&manifests("").out))[&("Deployment".into(), "bursar".into())]["spec"]["template"].clone();
    let context = &pod["spec"]["securityContext"];
    assert_eq!(all(&text, "USER"), [format!("{}:{}", context["runAsUser"], context["runAsGroup"])]);
    assert_eq!(all(&text, "EXPOSE"), [pod["spec"]["containers"][0]["ports"][0]["containerPort"].to_string()]);
    assert_eq!(all(&text, "ENTRYPOINT"), ["[\"/bursar\"]"]);
    // What is built before does not come along.
    let ignored = std::fs::read_to_string(at(".containerignore")).expect("what is ignored");
    assert!(ignored.lines().any(|line| line == "/target") && !ignored.contains("scripts"));
}
