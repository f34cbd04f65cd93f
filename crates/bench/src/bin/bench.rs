//! `bursar bench` without the rest of Bursar, which takes long to build.

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_default();
    bench::run(&name, &arguments.collect::<Vec<_>>(), &[])
}
