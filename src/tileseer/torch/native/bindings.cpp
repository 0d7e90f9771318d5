// The Python module of the kernels.

#include "call.hpp"

#include <ATen/Context.h>
#include <c10/util/Exception.h>
#include <torch/csrc/utils/pybind.h>

namespace {

using namespace tileseer;

// Python's function, which is never freed: at the end of a process there may be no interpreter to free it with.
pybind11::object& kept(pybind11::object function) { return *new pybind11::object(std::move(function)); }

// Whether a thread is one of Python's. Another one has no promise that the lock of the interpreter is ever free: who
// holds it may wait for this thread.
bool is_of_python() { return Py_IsInitialized() && PyGILState_GetThisThreadState(); }

// The text that Python's function returns, or nothing. Ctrl-C is raised where Python goes on, all else is thrown.
template <typename... Arguments>
std::optional<std::string> answer(const pybind11::object& function, const Arguments&... arguments)
{
    pybind11::gil_scoped_acquire gil;
    try
    {
        return function(arguments...).template cast<std::optional<std::string>>();
    }
    catch(const pybind11::error_already_set& error)
    {
        if(!error.matches(PyExc_KeyboardInterrupt))
            throw;
        PyErr_SetInterrupt();
        return std::nullopt;
    }
}

void use_functions(pybind11::object choose, pybind11::object begin, pybind11::object wait, size_t bound)
{
    use({is_of_python, [&function = kept(std::move(begin))](int64_t device) { answer(function, device); },
         [&function = kept(std::move(choose))](const std::shared_ptr<Call>& call) { return answer(function, call); },
         [&function = kept(std::move(wait))] {
             if(!function.is_none())
                 answer(function);
         }},
        bound);
}

} // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module)
{
    pybind11::register_local_exception<PlanError>(module, "PlanError", PyExc_RuntimeError);
    pybind11::register_local_exception_translator([](std::exception_ptr pointer) {
        try
        {
            if(pointer)
                std::rethrow_exception(pointer);
        }
        catch(const c10::OutOfMemoryError& error)
        {
            PyErr_SetString(PyExc_MemoryError, error.what_without_backtrace());
        }
        catch(const c10::Error& error)
        {
            PyErr_SetString(PyExc_RuntimeError, error.what_without_backtrace());
        }
    });
    const auto released = pybind11::call_guard<pybind11::gil_scoped_release>();
    const auto name = [](const Convolution& convolution) {
        return convolution.dtype == static_cast<int64_t>(c10::ScalarType::BFloat16) ? "bf16" : "fp16";
    };
    pybind11::class_<Call, std::shared_ptr<Call>>(module, "Call")
        .def_property_readonly("direction", [](const Call& call) { return call.convolution.direction; })
        .def_property_readonly("dtype", [name](const Call& call) { return name(call.convolution); })
        .def_property_readonly("benchmark", [](const Call& call) { return call.convolution.benchmark != 0; })
        .def_property_readonly("dims", [](const Call& call) { return call.convolution.dims; })
        .def_property_readonly("device", [](const Call& call) { return call.convolution.device; })
        .def("offered", &Call::offered, released)
        .def("build", &Call::build, released)
        .def("run", &Call::compute, released)
        .def("launch", &Call::launch, released)
        .def("has_layout", &Call::has_layout, released);
    // Call a function of Python's with products of fp32 that are not rounded to TF32.
    module.def("without_tf32", [](const pybind11::object& function) {
        const at::NoTF32Guard guard;
        return function();
    });
    module.def("version", version);
    module.def("use", use_functions);
    module.def("turn", turn);
    module.def("counts", counts);
    module.def("called", [name] {
        const auto [passes, shapes] = called();
        pybind11::list rows;
        for(const auto& [shape, calls] : shapes)
            rows.append(pybind11::make_tuple(
                shape.device, shape.direction, name(shape), shape.benchmark != 0, shape.dims, calls));
        return pybind11::make_tuple(passes, rows);
    });
    module.def(
        "know",
        [](int64_t device, int64_t direction, const std::string& name, bool benchmark,
           const std::array<int64_t, kDims>& dims, const std::string& plan) {
            Convolution convolution;
            convolution.device = device;
            convolution.direction = direction;
            convolution.dtype = static_cast<int64_t>(name == "bf16" ? c10::ScalarType::BFloat16 : c10::ScalarType::Half);
            convolution.benchmark = benchmark;
            convolution.dims = dims;
            know(convolution, plan);
        });
}
