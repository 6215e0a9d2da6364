/*
 * The part of ONNX Runtime's plugin interface that npuc uses, declared by hand: objects are opaque, tables are arrays of pointers.
 *
 * ORT hands out tables of functions (`OrtApi`, `OrtEpApi`, `OrtModelEditorApi`) whose order never changes; a version only adds to
 * their ends. The lists below name each function that is used with its place in its table. `ort_load` fetches them once, when
 * the library is registered, and checks the runtime by what these functions do before anything else is called.
 */
#ifndef NPUC_ORT_ABI_H
#define NPUC_ORT_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ORT_API_VERSION 23 /* the first release with everything that is needed: 1.23 */

typedef struct ort_status ort_status; /* NULL is success */
typedef struct ort_logger ort_logger;
typedef struct ort_graph ort_graph;
typedef struct ort_node ort_node;
typedef struct ort_value_info ort_value_info;
typedef struct ort_type_info ort_type_info;
typedef struct ort_tensor_info ort_tensor_info;
typedef struct ort_value ort_value;
typedef struct ort_attribute ort_attribute;
typedef struct ort_pairs ort_pairs;
typedef struct ort_session_options ort_session_options;
typedef struct ort_hardware ort_hardware;
typedef struct ort_device ort_device;
typedef struct ort_support ort_support;
typedef struct ort_compute_context ort_compute_context;
typedef struct ort_kernel_context ort_kernel_context;

enum { ORT_FAIL = 1, ORT_INVALID_ARGUMENT = 2, ORT_NO_SUCH_FILE = 3, ORT_EP_FAIL = 11 };
enum { ORT_INFO = 1, ORT_WARNING = 2, ORT_ERROR = 3 };
enum { ORT_CPU_DEVICE = 0 };
enum { ORT_TENSOR_TYPE = 1 };
enum {
    ORT_ATTRIBUTE_INT = 1,
    ORT_ATTRIBUTE_INTS,
    ORT_ATTRIBUTE_FLOAT,
    ORT_ATTRIBUTE_FLOATS,
    ORT_ATTRIBUTE_STRING,
    ORT_ATTRIBUTE_STRINGS,
    ORT_ATTRIBUTE_GRAPH,
    ORT_ATTRIBUTE_TENSOR
};

/* X(place in the table, name, result, arguments) */
#define ORT_API(X) \
    X(0, create_status, ort_status *, (int code, const char *text)) \
    X(1, error_code, int, (const ort_status *)) \
    X(2, error_message, const char *, (const ort_status *)) \
    X(51, tensor_mutable_data, ort_status *, (ort_value *, void **)) \
    X(55, tensor_info_of_type, ort_status *, (const ort_type_info *, const ort_tensor_info **)) \
    X(56, kind_of_type, ort_status *, (const ort_type_info *, int *)) \
    X(60, element_type, ort_status *, (const ort_tensor_info *, int *)) \
    X(61, rank, ort_status *, (const ort_tensor_info *, size_t *)) \
    X(62, dimensions, ort_status *, (const ort_tensor_info *, int64_t *, size_t)) \
    X(63, dimension_names, ort_status *, (const ort_tensor_info *, const char **, size_t)) \
    X(65, tensor_info, ort_status *, (const ort_value *, ort_tensor_info **)) \
    X(88, context_input_count, ort_status *, (const ort_kernel_context *, size_t *)) \
    X(89, context_output_count, ort_status *, (const ort_kernel_context *, size_t *)) \
    X(90, context_input, ort_status *, (const ort_kernel_context *, size_t, const ort_value **)) \
    X(91, context_output, ort_status *, (ort_kernel_context *, size_t, const int64_t *, size_t, ort_value **)) \
    X(93, release_status, void, (ort_status *)) \
    X(96, release_value, void, (ort_value *)) \
    X(99, release_tensor_info, void, (ort_tensor_info *)) \
    X(211, create_attribute, ort_status *, (const char *, const void *, int, int, ort_attribute **)) \
    X(212, release_attribute, void, (ort_attribute *)) \
    X(247, log, ort_status *, (const ort_logger *, int, const char *, const char *, int, const char *)) \
    X(254, build_info, const char *, (void)) \
    X(272, read_attribute, ort_status *, (const ort_attribute *, int, void *, size_t, size_t *)) \
    X(289, value_name, ort_status *, (const ort_value_info *, const char **)) \
    X(290, value_type, ort_status *, (const ort_value_info *, const ort_type_info **)) \
    X(291, model_editor_api, const void *, (void)) \
    X(295, create_pairs, void, (ort_pairs **)) \
    X(296, add_pair, void, (ort_pairs *, const char *, const char *)) \
    X(297, pair, const char *, (const ort_pairs *, const char *)) \
    X(298, pairs, void, (const ort_pairs *, const char *const **, const char *const **, size_t *)) \
    X(300, release_pairs, void, (ort_pairs *)) \
    X(307, hardware_type, int, (const ort_hardware *)) \
    X(317, ep_api, const void *, (void)) \
    X(318, tensor_bytes, ort_status *, (const ort_value *, size_t *)) \
    X(326, initializer, ort_status *, (const ort_value_info *, const ort_value **)) \
    X(330, is_graph_output, ort_status *, (const ort_value_info *, bool *)) \
    X(331, is_constant, ort_status *, (const ort_value_info *, bool *)) \
    X(334, model_path, ort_status *, (const ort_graph *, const char **)) \
    X(335, ir_version, ort_status *, (const ort_graph *, int64_t *)) \
    X(336, opset_count, ort_status *, (const ort_graph *, size_t *)) \
    X(337, opsets, ort_status *, (const ort_graph *, const char **, int64_t *, size_t)) \
    X(338, input_count, ort_status *, (const ort_graph *, size_t *)) \
    X(339, inputs, ort_status *, (const ort_graph *, const ort_value_info **, size_t)) \
    X(340, output_count, ort_status *, (const ort_graph *, size_t *)) \
    X(341, outputs, ort_status *, (const ort_graph *, const ort_value_info **, size_t)) \
    X(342, initializer_count, ort_status *, (const ort_graph *, size_t *)) \
    X(343, initializers, ort_status *, (const ort_graph *, const ort_value_info **, size_t)) \
    X(344, node_count, ort_status *, (const ort_graph *, size_t *)) \
    X(345, nodes, ort_status *, (const ort_graph *, const ort_node **, size_t)) \
    X(346, parent_node, ort_status *, (const ort_graph *, const ort_node **)) \
    X(349, node_name, ort_status *, (const ort_node *, const char **)) \
    X(350, node_type, ort_status *, (const ort_node *, const char **)) \
    X(351, node_domain, ort_status *, (const ort_node *, const char **)) \
    X(353, node_input_count, ort_status *, (const ort_node *, size_t *)) \
    X(354, node_inputs, ort_status *, (const ort_node *, const ort_value_info **, size_t)) \
    X(355, node_output_count, ort_status *, (const ort_node *, size_t *)) \
    X(356, node_outputs, ort_status *, (const ort_node *, const ort_value_info **, size_t)) \
    X(359, attribute_count, ort_status *, (const ort_node *, size_t *)) \
    X(360, attributes, ort_status *, (const ort_node *, const ort_attribute **, size_t)) \
    X(361, attribute, ort_status *, (const ort_node *, const char *, const ort_attribute **)) \
    X(362, attribute_tensor, ort_status *, (const ort_attribute *, ort_value **)) \
    X(363, attribute_type, ort_status *, (const ort_attribute *, int *)) \
    X(364, attribute_name, ort_status *, (const ort_attribute *, const char **)) \
    X(365, subgraph_count, ort_status *, (const ort_node *, size_t *)) \
    X(366, subgraphs, ort_status *, (const ort_node *, const ort_graph **, size_t, const char **)) \
    X(378, tensor_data, ort_status *, (const ort_value *, const void **)) \
    X(379, config_entries, ort_status *, (const ort_session_options *, ort_pairs **))

struct ort_ep_factory;
typedef struct ort_fusion {
    uint32_t version;
    bool drop_constant_initializers;
} ort_fusion;

#define ORT_EP_API(X) \
    X(0, create_device, ort_status *, \
      (struct ort_ep_factory *, const ort_hardware *, const ort_pairs *, const ort_pairs *, ort_device **)) \
    X(2, fuse, ort_status *, (ort_support *, const ort_node *const *, size_t, const ort_fusion *))

#define ORT_EDITOR_API(X) \
    X(6, create_node, ort_status *, \
      (const char *, const char *, const char *, const char *const *, size_t, const char *const *, size_t, \
       ort_attribute **, size_t, ort_node **))

#define ORT_MEMBER(place, name, result, arguments) result(*name) arguments;
typedef struct ort_api {
    int minor; /* of the running release */
    ORT_API(ORT_MEMBER)
    ORT_EP_API(ORT_MEMBER)
    ORT_EDITOR_API(ORT_MEMBER)
    bool (*has_shape)(const ort_tensor_info *); /* NULL before 1.24 */
} ort_api;

typedef struct ort_api_base {
    const void *(*get_api)(uint32_t version);
    const char *(*version)(void);
} ort_api_base;

/* What the library fills: each begins with the version of the interface that it was written for. */
typedef struct ort_ep ort_ep;
typedef struct ort_compute_info ort_compute_info;

typedef struct ort_ep_factory {
    uint32_t version;
    const char *(*name)(const struct ort_ep_factory *);
    const char *(*vendor)(const struct ort_ep_factory *);
    ort_status *(*supported_devices)(struct ort_ep_factory *, const ort_hardware *const *, size_t, ort_device **, size_t, size_t *);
    ort_status *(*create_ep)(struct ort_ep_factory *, const ort_hardware *const *, const ort_pairs *const *, size_t,
                             const ort_session_options *, const ort_logger *, ort_ep **);
    void (*release_ep)(struct ort_ep_factory *, ort_ep *);
    uint32_t (*vendor_id)(const struct ort_ep_factory *);
    const char *(*semantic_version)(const struct ort_ep_factory *);
    void (*validate_compiled_model)(void);
    void (*create_allocator)(void);
    void (*release_allocator)(void);
    ort_status *(*create_data_transfer)(struct ort_ep_factory *, void **);
    bool (*is_stream_aware)(const struct ort_ep_factory *);
    void (*later[8])(void); /* members of later versions: never set */
} ort_ep_factory;

struct ort_ep {
    uint32_t version;
    const char *(*name)(const ort_ep *);
    ort_status *(*get_capability)(ort_ep *, const ort_graph *, ort_support *);
    ort_status *(*compile)(ort_ep *, const ort_graph **, const ort_node **, size_t, ort_compute_info **, ort_node **);
    void (*release_compute_infos)(ort_ep *, ort_compute_info **, size_t);
    void (*later[21])(void);
};

struct ort_compute_info {
    uint32_t version;
    ort_status *(*create_state)(ort_compute_info *, ort_compute_context *, void **);
    ort_status *(*compute)(ort_compute_info *, void *, ort_kernel_context *);
    void (*release_state)(ort_compute_info *, void *);
};

/* Fetch and check the functions; a status with the reason in words if this runtime is not one that the library knows. */
ort_status *ort_load(const ort_api_base *base, ort_api *api);

/* A status from a format. */
ort_status *ort_error(const ort_api *api, int code, const char *format, ...);

/* Drop a status; whether it was an error. */
bool ort_failed(const ort_api *api, ort_status *status);

#endif
