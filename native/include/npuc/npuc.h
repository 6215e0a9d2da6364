/*
 * npuc: the public C API of the native core.
 *
 * The core is plain C11 with no Python behind it. Everything exported is declared here and marked NPUC_API; all else
 * in the library is hidden.
 */
#ifndef NPUC_NPUC_H
#define NPUC_NPUC_H

#if defined(_WIN32)
#  if defined(NPUC_BUILDING)
#    define NPUC_API __declspec(dllexport)
#  else
#    define NPUC_API __declspec(dllimport)
#  endif
#elif defined(__GNUC__)
#  define NPUC_API __attribute__((visibility("default")))
#else
#  define NPUC_API
#endif

/*
 * Changes whenever a caller built against an older header could misbehave: a removed function, a changed signature, a
 * changed struct layout. Adding a function does not change it.
 */
#define NPUC_ABI_VERSION 1

#ifdef __cplusplus
extern "C" {
#endif

/* The release this library was built from, such as "0.1.0". Static storage: never free it. */
NPUC_API const char *npuc_version(void);

/* The NPUC_ABI_VERSION this library was built with; compare it with the header's before any other call. */
NPUC_API int npuc_abi_version(void);

/*
 * For a program, not for a library inside of one: from now on, a mapped file that becomes shorter while it is read ends the
 * process with `status` and a sentence on stderr that names the file, where SIGBUS would have killed it. 0 if that is so.
 */
NPUC_API int npuc_report_truncation(int status);

#ifdef __cplusplus
}
#endif

#endif /* NPUC_NPUC_H */
