//! Compiles in a child process: both the parent's and the child's side.
//!
//! Module, code and errors go through three in-memory files shared only by these two. So neither waits for
//! the other to read, and the amount that the child writes can be limited separately. The parent reads them
//! when the child has exited.

use std::io::{self, Read, Seek, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::translate::compile;
use crate::confine::{Confinement, Reach, confine, file_in_memory};
use crate::filter::cancel::Cancel;
use crate::filter::load_error::LoadError;
use crate::filter::settings;
use crate::filter::text;

/// This program, even if its file has been replaced.
const PROGRAM: &str = "/proc/self/exe";

/// Exit codes of a child that rejects the module.
const NO_FILTER: u8 = 2;
const NO_CODE: u8 = 3;

/// Maximum bytes read of the child's standard error.
const COMPLAINT: u64 = 4096;

/// Intervals at which the parent polls the child: short at first, since most are done soon.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LAST_LOOK: Duration = Duration::from_millis(50);

/// A child that does not get to run is killed after this many times its CPU time limit.
const PATIENCE: u32 = 4;

/// The message of Rust's allocator when memory runs out, and of other code.
const OUT_OF_MEMORY: [&str; 2] = ["memory allocation of ", "os error 12"];

/// Compiles a module in a child.
pub(super) fn compile_aside(
    module: &[u8],
    confinement: Confinement,
    metered: bool,
    cancel: &Cancel,
) -> Result<Vec<u8>, LoadError> {
    let machine = LoadError::Machine;
    let mut input = file_in_memory(c"filter").map_err(machine)?;
    input
        .write_all(module)
        .and_then(|()| input.rewind())
        .map_err(machine)?;
    let mut output = file_in_memory(c"filter").map_err(machine)?;
    let mut errors = file_in_memory(c"filter").map_err(machine)?;
    let mut command = Command::new(PROGRAM);
    command
        .arg("compile-filter")
        .arg(format!("--parent={}", std::process::id()))
        .arg(format!("--memory={}", confinement.memory))
        .arg(format!("--milliseconds={}", confinement.time.as_millis()))
        .args(metered.then_some("--metered"))
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(input))
        .stdout(Stdio::from(output.try_clone().map_err(machine)?))
        .stderr(Stdio::from(errors.try_clone().map_err(machine)?));
    let child = Running(command.spawn().map_err(machine)?);
    let status = child.wait(confinement.time.saturating_mul(PATIENCE), cancel)?;
    if status.success() {
        let mut code = Vec::new();
        output
            .rewind()
            .and_then(|()| output.read_to_end(&mut code))
            .map_err(machine)?;
        return Ok(code);
    }
    let mut complaint = Vec::new();
    errors
        .rewind()
        .and_then(|()| errors.take(COMPLAINT).read_to_end(&mut complaint))
        .map_err(machine)?;
    Err(failure(status, &String::from_utf8_lossy(&complaint), confinement))
}

/// A child process that is killed when it is no longer needed.
struct Running(Child);

impl Running {
    fn wait(mut self, patience: Duration, cancel: &Cancel) -> Result<ExitStatus, LoadError> {
        let begun = Instant::now();
        let mut look = FIRST_LOOK;
        loop {
            if let Some(status) = self.0.try_wait().map_err(LoadError::Machine)? {
                return Ok(status);
            }
            if cancel.is_cancelled() {
                return Err(LoadError::Cancelled);
            }
            if begun.elapsed() >= patience {
                return Err(LoadError::CompilingWaits(patience));
            }
            thread::sleep(look);
            look = (look * 2).min(LAST_LOOK);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Has no effect on a child that was already waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The error for a child that failed.
fn failure(status: ExitStatus, complaint: &str, confinement: Confinement) -> LoadError {
    let said = || text::one_line(complaint.trim_end(), 1024);
    if OUT_OF_MEMORY.iter().any(|words| complaint.contains(words)) {
        return LoadError::CompilingMemory(confinement.memory);
    }
    match (status.code(), status.signal()) {
        (Some(code), _) if code == i32::from(NO_FILTER) => LoadError::Encode(said()),
        (Some(code), _) if code == i32::from(NO_CODE) => LoadError::Compile(said()),
        (_, Some(libc::SIGXCPU)) => LoadError::CompilingTime(confinement.time),
        (_, Some(libc::SIGXFSZ)) => LoadError::CompilingMemory(confinement.memory),
        (_, Some(libc::SIGKILL)) => LoadError::CompilerKilled,
        _ => LoadError::Compile(format!(
            "the process that compiles it ended with {status}: {}",
            said()
        )),
    }
}

/// Compiles the module on standard input for the process `parent`, and writes the code to standard output, or
/// the error to standard error. Returns the exit code. Must be called before this process does anything else.
#[expect(clippy::print_stderr, reason = "the parent reads it there")]
pub fn serve(parent: u32, confinement: Confinement, metered: bool) -> u8 {
    let done = confine(parent, confinement, Reach::Nothing)
        .map_err(LoadError::Machine)
        .and_then(|()| {
            let mut module = Vec::new();
            io::stdin().read_to_end(&mut module).map_err(LoadError::Machine)?;
            let engine =
                settings::compiler(metered).map_err(|error| LoadError::Compile(error.to_string()))?;
            let code = compile(&engine, &module)?;
            let mut output = io::stdout();
            output
                .write_all(&code)
                .and_then(|()| output.flush())
                .map_err(LoadError::Machine)
        });
    let (code, said) = match done {
        Ok(()) => return 0,
        Err(LoadError::Encode(said)) => (NO_FILTER, said),
        Err(LoadError::Compile(said)) => (NO_CODE, said),
        Err(other) => (1, other.to_string()),
    };
    eprintln!("{said}");
    code
}
