/* Attributes by name, of any type. Header only, over npuc's C runtime. */
#ifndef NPUC_XIR_ATTRS_HPP
#define NPUC_XIR_ATTRS_HPP

#include <any>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace xir {

class Attrs {
public:
    static std::unique_ptr<Attrs> create() { return std::make_unique<Attrs>(); }

    bool has_attr(const std::string &key) const { return values_.count(key) != 0; }

    template <typename T> T get_attr(const std::string &key) const
    {
        const auto found = values_.find(key);
        if (found == values_.end()) throw std::out_of_range("XIR_UNDEFINED_ATTR: there is no attribute '" + key + "'");
        const T *value = std::any_cast<T>(&found->second);
        if (!value) throw std::invalid_argument("the attribute '" + key + "' has another type");
        return *value;
    }

    template <typename T> Attrs *set_attr(const std::string &key, const T &value)
    {
        values_[key] = value;
        return this;
    }

    std::vector<std::string> get_keys() const
    {
        std::vector<std::string> keys;
        for (const auto &each : values_) keys.push_back(each.first);
        return keys;
    }

private:
    std::map<std::string, std::any> values_;
};

/* What has attributes. */
class Attributed {
public:
    bool has_attr(const std::string &key) const { return attrs_.has_attr(key); }
    template <typename T> T get_attr(const std::string &key) const { return attrs_.get_attr<T>(key); }
    template <typename T> void set_attr(const std::string &key, const T &value) { attrs_.set_attr(key, value); }

private:
    Attrs attrs_;
};

} // namespace xir

#endif
