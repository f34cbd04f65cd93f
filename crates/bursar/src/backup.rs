//! `bursar backup`, `restore` and `verify` (docs/backup.md).

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use futures::AsyncReadExt as _;
use server::config::Config;
use server::core::LoadError;
use store::StoreError;
use store::disk::{Disk, FolderDisk};
use store::embedded::{Archive, Backup, ReadStore};

/// What is read from the server at a time.
const PIECE_BYTES: usize = 256 * 1024;

#[derive(clap::Args)]
pub struct BackupArgs {
    /// Where the backup is written; - for standard output
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Read this data folder, which no server may use, instead of asking the server that KUBECONFIG names
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

#[derive(clap::Args)]
pub struct RestoreArgs {
    /// A file that `bursar backup` wrote
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The data folder to fill; one that holds a store already is refused
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    #[command(flatten)]
    how: How,
}

#[derive(clap::Args)]
pub struct VerifyArgs {
    /// A data folder that no server uses, or a file that `bursar backup` wrote
    #[arg(value_name = "DIR|FILE")]
    what: PathBuf,
    #[command(flatten)]
    how: How,
}

/// What quotas mean, and what opens encrypted objects, is in the server's configuration.
#[derive(clap::Args)]
struct How {
    /// The configuration that the server runs with
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The keys of encrypted objects, if the configuration does not name the file
    #[arg(long, value_name = "FILE")]
    encryption_provider_config: Option<PathBuf>,
}

pub fn backup(args: BackupArgs) -> anyhow::Result<()> {
    let mut target = Target::open(&args.file)?;
    match &args.data {
        Some(data) => of_folder(data, &mut target)?,
        None => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.context("cannot start threads")?.block_on(of_server(&mut target))?
        }
    };
    eprintln!("saved {} bytes", target.finish()?);
    Ok(())
}

fn of_folder(data: &Path, target: &mut Target) -> anyhow::Result<()> {
    let disk = folder(data)?;
    if !disk.lock()? {
        bail!("{} is in use: leave --data out, and the server is asked for the backup", data.display());
    }
    let mut backup = Backup::of_folder(&disk)?;
    while let Some(piece) = backup.next_piece()? {
        target.write(&piece)?;
    }
    Ok(())
}

async fn of_server(target: &mut Target) -> anyhow::Result<()> {
    let client = kube::Client::try_default().await.context("no server to speak to: is KUBECONFIG set?")?;
    let request = http::Request::get("/bursar/backup").body(Vec::new())?;
    let pieces = match client.request_stream(request).await {
        Err(kube::Error::Api(status)) => bail!("the server refused: {}", status.message),
        answered => answered.context("the server cannot be reached")?,
    };
    let mut pieces = std::pin::pin!(pieces);
    let mut buffer = vec![0; PIECE_BYTES];
    loop {
        match pieces.read(&mut buffer).await.context("the backup was cut off")? {
            0 => return Ok(()),
            count => target.write(&buffer[..count])?,
        }
    }
}

pub fn restore(args: RestoreArgs) -> anyhow::Result<()> {
    let archive = Archive::open(&args.file)?;
    judge(&args.file, Arc::new(Archive::open(&args.file)?), &args.how)?;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&args.data);
    made.with_context(|| args.data.display().to_string())?;
    archive.restore(&args.data.join("store"))?;
    println!("restored into {}; certificates and keys (pki) are not part of a backup", args.data.display());
    Ok(())
}

pub fn verify(args: VerifyArgs) -> anyhow::Result<()> {
    let disk: Arc<dyn Disk> = match std::fs::metadata(&args.what).with_context(|| args.what.display().to_string())? {
        facts if facts.is_dir() => Arc::new(folder(&args.what)?),
        _ => match Archive::open(&args.what) {
            Ok(archive) => Arc::new(archive),
            Err(_) => return Err(all(&args.what, &Archive::examine(&args.what))),
        },
    };
    judge(&args.what, disk, &args.how)
}

/// Checks every byte and every reference, and prints what was found.
fn judge(what: &Path, disk: Arc<dyn Disk>, how: &How) -> anyhow::Result<()> {
    let mut config = how.config.as_deref().map(Config::load).transpose()?.unwrap_or_default();
    config.encryption_configuration = how.encryption_provider_config.clone().or(config.encryption_configuration);
    let families = families::all(&server::serve::settings(&config)?);
    let encryption = Arc::new(server::serve::encryption(&config)?);
    let mut store = ReadStore::open(disk)?;
    let now_ms = server::api::system_clock();
    let verified = match server::core::verify(&mut store, families, encryption, now_ms) {
        Err(LoadError::Store(_)) => return Err(all(what, &store.examine())),
        verified => verified?,
    };
    let what = what.display();
    if let Some(dropped) = store::Store::dropped(&store) {
        println!("{what}: {dropped}");
    }
    let server::core::Verified { revision, objects, accounts, subjects, problems } = verified;
    println!("{what}: {objects} objects at revision {revision}, {accounts} accounts, {subjects} subjects");
    match problems.as_slice() {
        [] => {
            println!("{what}: everything reads, and the ledger is what the objects add up to");
            Ok(())
        }
        problems => bail!("{what}: {} problems:\n  {}", problems.len(), problems.join("\n  ")),
    }
}

/// Every damage in one error.
fn all(what: &Path, damages: &[StoreError]) -> anyhow::Error {
    let told: Vec<String> = damages.iter().map(StoreError::to_string).collect();
    anyhow::anyhow!("{}: {} problems:\n  {}", what.display(), told.len(), told.join("\n  "))
}

/// The store in a data folder, or the folder itself if it is one.
fn folder(data: &Path) -> anyhow::Result<FolderDisk> {
    let inner = data.join("store");
    let path = if inner.is_dir() { inner } else { data.to_owned() };
    if !path.is_dir() {
        bail!("{} is not a data folder", data.display());
    }
    FolderDisk::open_for_reading(&path).map_err(|error| StoreError::io(path.display().to_string(), error).into())
}

/// Where a backup goes: a file that appears whole or not at all, or standard output.
struct Target {
    path: Option<(PathBuf, PathBuf)>,
    out: Box<dyn Write>,
    file: Option<File>,
    bytes: u64,
}

impl Target {
    fn open(path: &Path) -> anyhow::Result<Target> {
        if path == Path::new("-") {
            return Ok(Target { path: None, out: Box::new(std::io::stdout().lock()), file: None, bytes: 0 });
        }
        let mut beside = path.as_os_str().to_owned();
        beside.push(".new");
        let beside = PathBuf::from(beside);
        // It holds what every tenant stored: for its owner alone.
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside);
        let file = file.with_context(|| beside.display().to_string())?;
        let out = Box::new(file.try_clone()?);
        Ok(Target { path: Some((beside, path.to_owned())), out, file: Some(file), bytes: 0 })
    }

    fn write(&mut self, piece: &[u8]) -> anyhow::Result<()> {
        self.out.write_all(piece).context("the backup cannot be written")?;
        self.bytes += piece.len() as u64;
        Ok(())
    }

    /// Checks what was written before it gets its name.
    fn finish(mut self) -> anyhow::Result<u64> {
        self.out.flush()?;
        if let (Some((beside, path)), Some(file)) = (self.path.take(), &self.file) {
            file.sync_all()?;
            if let Err(error) = Archive::open(&beside) {
                let _left_over = std::fs::remove_file(&beside);
                return Err(error.into());
            }
            std::fs::rename(&beside, &path)?;
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            File::open(parent)?.sync_all()?;
        }
        Ok(self.bytes)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some((beside, _)) = self.path.take() {
            let _left_over = std::fs::remove_file(beside);
        }
    }
}
