;; WASI preview 1 in a world where there is nothing: what modules get that import it because the runtime of their
;; language does. wit-component puts it between such a module and the host. Whoever wants more gets an error.
;;
;; The clock counts its own readings, waiting sets it forward, and the random octets are always the same ones, so
;; that a filter does the same with the same queries wherever it runs. Text for standard output and standard error
;; becomes lines of the filter's log. There are no arguments, no environment, no other descriptors and no sockets.
(module
  (import "env" "memory" (memory 0))
  (import "dnsweir:filter/host@0.1.0" "log" (func $log (param $level i32) (param $at i32) (param $length i32)))

  ;; Nanoseconds since 1970 and since the start alike, a microsecond later at each reading.
  (global $clock (mut i64) (i64.const 0))
  ;; The state of a xorshift generator.
  (global $random (mut i64) (i64.const 0x9e3779b97f4a7c15))
  ;; A page of the guest's memory for a line that has no end yet, and how much of it there is.
  (global $line (mut i32) (i32.const 0))
  (global $length (mut i32) (i32.const 0))

  (func $two_zeros (param $first i32) (param $second i32) (result i32)
    (i32.store (local.get $first) (i32.const 0))
    (i32.store (local.get $second) (i32.const 0))
    (i32.const 0))
  (func (export "args_sizes_get") (param i32 i32) (result i32) (call $two_zeros (local.get 0) (local.get 1)))
  (func (export "environ_sizes_get") (param i32 i32) (result i32) (call $two_zeros (local.get 0) (local.get 1)))
  (func (export "args_get") (param i32 i32) (result i32) (i32.const 0))
  (func (export "environ_get") (param i32 i32) (result i32) (i32.const 0))

  (func (export "clock_res_get") (param i32) (param $into i32) (result i32)
    (i64.store (local.get $into) (i64.const 1000))
    (i32.const 0))
  (func (export "clock_time_get") (param i32 i64) (param $into i32) (result i32)
    (global.set $clock (i64.add (global.get $clock) (i64.const 1000)))
    (i64.store (local.get $into) (global.get $clock))
    (i32.const 0))

  ;; Waiting for a time to come ends at once, and that time has come. There is nothing else to wait for.
  (func (export "poll_oneoff") (param $wants i32) (param $happened i32) (param $count i32) (param $into i32) (result i32)
    (local $until i64)
    (if (i32.or (i32.eqz (local.get $count)) (i32.load8_u offset=8 (local.get $wants)))
      (then (return (i32.const 52))))
    (local.set $until (i64.load offset=24 (local.get $wants)))
    ;; Unless it is a time of the clock it is one from now.
    (if (i32.eqz (i32.load16_u offset=40 (local.get $wants)))
      (then (local.set $until (i64.add (local.get $until) (global.get $clock)))))
    (if (i64.gt_u (local.get $until) (global.get $clock))
      (then (global.set $clock (local.get $until))))
    (i64.store (local.get $happened) (i64.load (local.get $wants)))
    (i64.store offset=8 (local.get $happened) (i64.const 0))
    (i32.store (local.get $into) (i32.const 1))
    (i32.const 0))

  (func (export "random_get") (param $at i32) (param $length i32) (result i32)
    (local $x i64)
    (local.set $x (global.get $random))
    (block $done (loop $next
      (br_if $done (i32.eqz (local.get $length)))
      (local.set $x (i64.xor (local.get $x) (i64.shl (local.get $x) (i64.const 13))))
      (local.set $x (i64.xor (local.get $x) (i64.shr_u (local.get $x) (i64.const 7))))
      (local.set $x (i64.xor (local.get $x) (i64.shl (local.get $x) (i64.const 17))))
      (i64.store8 (local.get $at) (i64.shr_u (local.get $x) (i64.const 56)))
      (local.set $at (i32.add (local.get $at) (i32.const 1)))
      (local.set $length (i32.sub (local.get $length) (i32.const 1)))
      (br $next)))
    (global.set $random (local.get $x))
    (i32.const 0))

  (func $end_line (param $level i32)
    (if (global.get $length)
      (then (call $log (local.get $level) (global.get $line) (global.get $length))))
    (global.set $length (i32.const 0)))
  (func $put (param $level i32) (param $octet i32)
    (if (i32.eq (local.get $octet) (i32.const 0x0a))
      (then (call $end_line (local.get $level)) (return)))
    ;; A line is UTF-8, which only ASCII is wherever it is cut.
    (i32.store8 (i32.add (global.get $line) (global.get $length))
      (select (i32.const 0x3f) (local.get $octet) (i32.ge_u (local.get $octet) (i32.const 0x80))))
    (global.set $length (i32.add (global.get $length) (i32.const 1)))
    (if (i32.eq (global.get $length) (i32.const 1024))
      (then (call $end_line (local.get $level)))))
  ;; Standard output is what the filter informs about, standard error what it warns of. `EBADF` for others.
  (func (export "fd_write") (param $fd i32) (param $parts i32) (param $count i32) (param $into i32) (result i32)
    (local $level i32) (local $at i32) (local $end i32) (local $written i32)
    (if (i32.gt_u (i32.sub (local.get $fd) (i32.const 1)) (i32.const 1)) (then (return (i32.const 8))))
    (local.set $level (i32.sub (i32.const 3) (local.get $fd)))
    (if (i32.eqz (global.get $line)) (then
      (global.set $line (memory.grow (i32.const 1)))
      (if (i32.eq (global.get $line) (i32.const -1)) (then unreachable))
      (global.set $line (i32.shl (global.get $line) (i32.const 16)))))
    (block $done (loop $part
      (br_if $done (i32.eqz (local.get $count)))
      (local.set $at (i32.load (local.get $parts)))
      (local.set $end (i32.add (local.get $at) (i32.load offset=4 (local.get $parts))))
      (local.set $written (i32.add (local.get $written) (i32.load offset=4 (local.get $parts))))
      (block $full (loop $octet
        (br_if $full (i32.eq (local.get $at) (local.get $end)))
        (call $put (local.get $level) (i32.load8_u (local.get $at)))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (br $octet)))
      (local.set $parts (i32.add (local.get $parts) (i32.const 8)))
      (local.set $count (i32.sub (local.get $count) (i32.const 1)))
      (br $part)))
    (i32.store (local.get $into) (local.get $written))
    (i32.const 0))

  (func (export "sched_yield") (result i32) (i32.const 0))
  (func (export "proc_exit") (param i32) unreachable)

  ;; No such descriptor: `EBADF`.
  (func (export "fd_advise") (param i32 i64 i64 i32) (result i32) (i32.const 8))
  (func (export "fd_allocate") (param i32 i64 i64) (result i32) (i32.const 8))
  (func (export "fd_close") (param i32) (result i32) (i32.const 8))
  (func (export "fd_datasync") (param i32) (result i32) (i32.const 8))
  (func (export "fd_fdstat_get") (param i32 i32) (result i32) (i32.const 8))
  (func (export "fd_fdstat_set_flags") (param i32 i32) (result i32) (i32.const 8))
  (func (export "fd_fdstat_set_rights") (param i32 i64 i64) (result i32) (i32.const 8))
  (func (export "fd_filestat_get") (param i32 i32) (result i32) (i32.const 8))
  (func (export "fd_filestat_set_size") (param i32 i64) (result i32) (i32.const 8))
  (func (export "fd_filestat_set_times") (param i32 i64 i64 i32) (result i32) (i32.const 8))
  (func (export "fd_pread") (param i32 i32 i32 i64 i32) (result i32) (i32.const 8))
  (func (export "fd_prestat_get") (param i32 i32) (result i32) (i32.const 8))
  (func (export "fd_prestat_dir_name") (param i32 i32 i32) (result i32) (i32.const 8))
  (func (export "fd_pwrite") (param i32 i32 i32 i64 i32) (result i32) (i32.const 8))
  (func (export "fd_read") (param i32 i32 i32 i32) (result i32) (i32.const 8))
  (func (export "fd_readdir") (param i32 i32 i32 i64 i32) (result i32) (i32.const 8))
  (func (export "fd_renumber") (param i32 i32) (result i32) (i32.const 8))
  (func (export "fd_seek") (param i32 i64 i32 i32) (result i32) (i32.const 8))
  (func (export "fd_sync") (param i32) (result i32) (i32.const 8))
  (func (export "fd_tell") (param i32 i32) (result i32) (i32.const 8))

  ;; No such function: `ENOSYS`.
  (func (export "path_create_directory") (param i32 i32 i32) (result i32) (i32.const 52))
  (func (export "path_filestat_get") (param i32 i32 i32 i32 i32) (result i32) (i32.const 52))
  (func (export "path_filestat_set_times") (param i32 i32 i32 i32 i64 i64 i32) (result i32) (i32.const 52))
  (func (export "path_link") (param i32 i32 i32 i32 i32 i32 i32) (result i32) (i32.const 52))
  (func (export "path_open") (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32) (i32.const 52))
  (func (export "path_readlink") (param i32 i32 i32 i32 i32 i32) (result i32) (i32.const 52))
  (func (export "path_remove_directory") (param i32 i32 i32) (result i32) (i32.const 52))
  (func (export "path_rename") (param i32 i32 i32 i32 i32 i32) (result i32) (i32.const 52))
  (func (export "path_symlink") (param i32 i32 i32 i32 i32) (result i32) (i32.const 52))
  (func (export "path_unlink_file") (param i32 i32 i32) (result i32) (i32.const 52))
  (func (export "proc_raise") (param i32) (result i32) (i32.const 52))
  (func (export "sock_accept") (param i32 i32 i32) (result i32) (i32.const 52))
  (func (export "sock_recv") (param i32 i32 i32 i32 i32 i32) (result i32) (i32.const 52))
  (func (export "sock_send") (param i32 i32 i32 i32 i32) (result i32) (i32.const 52))
  (func (export "sock_shutdown") (param i32 i32) (result i32) (i32.const 52)))
