/*
 * Preloaded into a user-mode kernel: hands its processes' floating-point state over whole.
 *
 * The kernel keeps that state in a buffer whose size was fixed when it was built, and gives as much of it back by
 * PTRACE_SETREGSET. A machine whose processor has more (AMX) takes all of it or nothing, and no process of the user-mode
 * kernel would start. What the buffer does not hold stays as it is.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

#ifndef NT_X86_XSTATE
#define NT_X86_XSTATE 0x202
#endif

typedef long ptrace_function(enum __ptrace_request, ...);

long ptrace(enum __ptrace_request request, ...)
{
	static ptrace_function *next;
	static _Thread_local char whole[64 << 10];
	va_list arguments;
	va_start(arguments, request);
	pid_t process = va_arg(arguments, pid_t);
	void *address = va_arg(arguments, void *);
	void *data = va_arg(arguments, void *);
	va_end(arguments);

	if (!next)
		next = (ptrace_function *)dlsym(RTLD_NEXT, "ptrace");
	if (request == PTRACE_SETREGSET && (unsigned long)address == NT_X86_XSTATE) {
		const struct iovec *part = data;
		struct iovec all = { whole, sizeof whole };
		if (next(PTRACE_GETREGSET, process, address, &all) == 0 && part->iov_len < all.iov_len) {
			memcpy(whole, part->iov_base, part->iov_len);
			return next(request, process, address, &all);
		}
	}
	return next(request, process, address, data);
}
