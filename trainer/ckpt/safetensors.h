/* safetensors.h: tensors in a file that every safetensors reader can open.
 *
 *   8 bytes  length of the header, little-endian
 *   header   JSON: {"__metadata__": {text: text}, name: {"dtype", "shape", "data_offsets"}, ...},
 *            padded with blanks so that the data starts at a multiple of 64
 *   data     tensor after tensor, without holes
 *
 * Beside the format's own rules, a file that we write carries checksums in its metadata: one
 * XXH3-128 per tensor ("xxh3.<name>") and one of the header itself ("xxh3"), so that a flipped byte
 * anywhere is found when the file is loaded, by name. Files of others, which have none, are read as
 * well.
 *
 * Knows nothing of ranks, layouts or training. All numbers are little-endian, as this code's hosts.
 * Threads: a writer belongs to one; an open file is immutable and may be shared.
 * Errors: TRP_ECORRUPT names the file and the tensor; TRP_EIO names the path. */
#ifndef TRPI_SAFETENSORS_H
#define TRPI_SAFETENSORS_H

#include "core/base/base.h"

#define TRPI_TENSOR_DIMS_MAX 8
#define TRPI_TENSOR_HEADER_MAX 100000000 /* bytes; the limit of the reference implementation */

/* X(name, bytes): every dtype of the format whose elements are whole bytes and that C has, or that
 * we train in. The first four are trp_dtype's, with its values: a trp_dtype may be cast. */
#define TRPI_STORED_MAP(X)                                                                         \
    X(F32, 4)                                                                                      \
    X(BF16, 2)                                                                                     \
    X(F16, 2)                                                                                      \
    X(I32, 4)                                                                                      \
    X(I64, 8) X(U8, 1) X(F64, 8) X(I16, 2) X(I8, 1) X(BOOL, 1) X(U16, 2) X(U32, 4) X(U64, 8)

typedef enum trpi_stored {
#define X(name, bytes) TRPI_STORED_##name,
    TRPI_STORED_MAP(X)
#undef X
        TRPI_STORED_COUNT
} trpi_stored;
size_t trpi_stored_size(trpi_stored dtype);      /* bytes of an element */
const char *trpi_stored_name(trpi_stored dtype); /* "BF16"; "?" for none */

/* ---- Writing ---- */

typedef struct trpi_tensor_writer trpi_tensor_writer;

/* Creates or truncates the file. The tensors are declared first, then their data follows: tensors
 * in any order and interleaved, the bytes of one tensor in order. Nothing is kept in memory. */
TRP_CHECKED trp_code trpi_tensor_writer_open(const char *path, trpi_tensor_writer **ret_writer,
                                             trp_error *err);

/* Adds a line to the metadata; key and value are copied. TRP_EINVALID: a key twice, one of ours
 * ("xxh3..."), no UTF-8, or after the first data. */
TRP_CHECKED trp_code trpi_tensor_writer_meta(trpi_tensor_writer *writer, const char *key,
                                             const char *value, trp_error *err);

/* Declares a tensor; they get indices 0, 1, 2 ... and lie in the file in that order. dims 0 is a
 * scalar, an extent of 0 an empty tensor. TRP_EINVALID: a name twice, too many dims, too large. */
TRP_CHECKED trp_code trpi_tensor_writer_add(trpi_tensor_writer *writer, const char *name,
                                            trpi_stored dtype, const int64_t *shape, int dims,
                                            trp_error *err);

/* The next bytes of the tensor of that index. TRP_EINVALID: more than the tensor has. */
TRP_CHECKED trp_code trpi_tensor_writer_append(trpi_tensor_writer *writer, size_t tensor,
                                               const void *data, size_t bytes, trp_error *err);

/* Completes the header, fsyncs and closes; sets *writer to NULL in every case. A tensor with bytes
 * missing is TRP_EINVALID. After an error the file is removed. */
TRP_CHECKED trp_code trpi_tensor_writer_finish(trpi_tensor_writer **writer, trp_error *err);
void trpi_tensor_writer_abort(trpi_tensor_writer *writer); /* removes the file; NULL is fine */

/* ---- Reading ---- */

typedef struct trpi_tensor_file trpi_tensor_file;

typedef struct trpi_tensor {
    const char *name;
    trpi_stored dtype;
    int dims;
    int64_t shape[TRPI_TENSOR_DIMS_MAX];
    int64_t elements;
    uint64_t offset, bytes; /* in the data section */
    char checksum[33];      /* "" in a file without */
} trpi_tensor;

/* Reads and checks the header: lengths, offsets, overlaps, holes, dtypes, file size, header
 * checksum. The data is not read. TRP_ENOTFOUND, TRP_EIO, TRP_ECORRUPT. */
TRP_CHECKED trp_code trpi_tensor_file_open(const char *path, trpi_tensor_file **ret_file,
                                           trp_error *err);
void trpi_tensor_file_close(trpi_tensor_file *file); /* NULL is fine */

const char *trpi_tensor_file_path(const trpi_tensor_file *file);

/* Borrowed until close; in the order in which they lie in the file. */
size_t trpi_tensor_file_count(const trpi_tensor_file *file);
const trpi_tensor *trpi_tensor_file_at(const trpi_tensor_file *file, size_t index);
const trpi_tensor *trpi_tensor_file_find(const trpi_tensor_file *file,
                                         const char *name); /* or NULL */

/* Metadata without our checksums; in the file's order. */
const char *trpi_tensor_file_meta(const trpi_tensor_file *file, const char *key); /* or NULL */
size_t trpi_tensor_file_meta_count(const trpi_tensor_file *file);
const char *trpi_tensor_file_meta_at(const trpi_tensor_file *file, size_t index,
                                     const char **ret_value);

/* `bytes` bytes from `offset` inside the tensor. Not checked against the checksum, which covers the
 * whole tensor: call trpi_tensor_file_verify() first, or read the whole. TRP_EINVALID: past its
 * end. */
TRP_CHECKED trp_code trpi_tensor_file_read(const trpi_tensor_file *file, const trpi_tensor *tensor,
                                           uint64_t offset, void *out, size_t bytes,
                                           trp_error *err);
/* The whole tensor (tensor->bytes) and its checksum, when the file has one. */
TRP_CHECKED trp_code trpi_tensor_file_read_all(const trpi_tensor_file *file,
                                               const trpi_tensor *tensor, void *out,
                                               trp_error *err);
/* Reads the tensor, or with NULL all of them, in pieces and compares the checksums.
 * TRP_EUNSUPPORTED when the file has none. */
TRP_CHECKED trp_code trpi_tensor_file_verify(const trpi_tensor_file *file,
                                             const trpi_tensor *tensor, trp_error *err);

#endif
