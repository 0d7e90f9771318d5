// SPDX-License-Identifier: MIT
// Choices that were timed once, by problem and device, in a file that Python shares (src/tileseer/serve/tuned.py, which
// describes it). C++17, standard library and POSIX. Several threads and processes may read and remember at once.
#pragma once

#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <locale>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

namespace tileseer {

using TunedDims = std::array<std::int32_t, 19>; ///< those of a selector's `Problem`, in its order

/// The fastest candidate of one problem on one device.
struct TunedChoice
{
    TunedDims dims{};
    std::string candidate;
    double time_ms = 0;
    int timed      = 0;                   ///< how many candidates were timed, this one included; 0 without a time
    std::string device;                   ///< the product, as its driver reports it
    std::string device_kind = "measured"; ///< or simulated, or recorded
};

class TunedChoices
{
public:
    /// Read a file, `MODELS.tuned/OPERATION.tsv`; without it there are no choices yet.
    explicit TunedChoices(std::filesystem::path path) : path_(std::move(path)) { read(); }

    /// The choice for a problem on a device, whose candidate `has` accepts: what a model lost is passed over.
    template <class Has>
    std::optional<TunedChoice> find(const TunedDims& dims, std::string_view device, std::string_view kind, const Has& has) const
    {
        const std::lock_guard<std::mutex> alone(mutex_);
        const std::string name = one_line(device);
        for(const TunedChoice& choice : choices_)
            if(choice.dims == dims && choice.device == name && choice.device_kind == kind && has(choice.candidate))
                return choice;
        return std::nullopt;
    }

    /// Add a choice behind those that are in the file by now; `find` then gives the one that counts. False, and a line on
    /// stderr, if it cannot be written: the choice counts for this process alone.
    bool remember(TunedChoice choice)
    {
        const std::lock_guard<std::mutex> alone(mutex_);
        choice.device = one_line(choice.device);
        std::error_code error;
        const std::filesystem::path folder = path_.parent_path().empty() ? std::filesystem::path(".") : path_.parent_path();
        std::filesystem::create_directories(folder, error);
        const int locked = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        // Not every disk has locks; without one, a choice of another process may be lost, and is timed again.
        while(locked >= 0 && ::flock(locked, LOCK_EX) != 0 && errno == EINTR)
            ;
        read();
        add(std::move(choice));
        const bool written = !foreign_ && write(folder);
        if(locked >= 0)
            ::close(locked);
        if(!written)
            std::fprintf(stderr, "tileseer: %s: a tuned choice cannot be written\n", path_.c_str());
        return written;
    }

private:
    static constexpr const char* header =
        "N\tC\tK\tG\tDi\tHi\tWi\tZ\tY\tX\tstride_d\tstride_h\tstride_w\tpad_d\tpad_h\tpad_w\tdilation_d\tdilation_h\tdilation_w\t"
        "candidate\ttime_ms\ttimed\tdevice\tdevice_kind";

    /// Of equal rows the first stays.
    void add(TunedChoice choice)
    {
        for(const TunedChoice& other : choices_)
            if(other.dims == choice.dims && other.candidate == choice.candidate && other.device == choice.device &&
               other.device_kind == choice.device_kind)
                return;
        choices_.push_back(std::move(choice));
    }

    void read()
    {
        // A pipe without a writer would block for ever.
        std::error_code none;
        if(!std::filesystem::is_regular_file(path_, none))
            return;
        std::ifstream file(path_, std::ios::binary);
        std::string line;
        if(!file || !std::getline(file, line))
            return;
        foreign_ = line != header;
        std::vector<TunedChoice> own;
        own.swap(choices_);
        bool damaged = false;
        while(!foreign_ && std::getline(file, line))
        {
            if(std::optional<TunedChoice> choice = parsed(line))
                choices_.push_back(std::move(*choice));
            else
                damaged = damaged || !line.empty();
        }
        for(TunedChoice& choice : own)
            add(std::move(choice));
        if((foreign_ || damaged) && !std::exchange(warned_, true))
            std::fprintf(stderr, "tileseer: %s: %s\n", path_.c_str(), foreign_ ? "no table of tuned choices; not used" : "damaged lines are skipped");
    }

    static std::optional<TunedChoice> parsed(const std::string& line)
    {
        std::vector<std::string> fields(1);
        for(const char letter : line)
            if(letter == '\t')
                fields.emplace_back();
            else
                fields.back() += letter;
        TunedChoice choice;
        const std::size_t first = choice.dims.size();
        if(fields.size() != first + 5)
            return std::nullopt;
        for(std::size_t place = 0; place < first; ++place)
            if(!number(fields[place], choice.dims[place]))
                return std::nullopt;
        std::istringstream time(fields[first + 1]);
        time.imbue(std::locale::classic());
        if(!is_time(fields[first + 1]) || !(time >> choice.time_ms) || !std::isfinite(choice.time_ms))
            return std::nullopt;
        choice.candidate   = fields[first];
        choice.device      = fields[first + 3];
        choice.device_kind = fields[first + 4];
        const std::string& kind = choice.device_kind;
        if(!number(fields[first + 2], choice.timed) || (choice.timed > 0) != (choice.time_ms > 0) || !is_text(choice.candidate) || !is_text(choice.device) ||
           (kind != "measured" && kind != "simulated" && kind != "recorded"))
            return std::nullopt;
        return choice;
    }

    /// The digits at a place, at most so many, which then is behind them; false without any.
    static bool digits(const std::string& text, std::size_t& place, std::size_t most)
    {
        const std::size_t first = place;
        while(place < text.size() && text[place] >= '0' && text[place] <= '9')
            ++place;
        return place > first && place - first <= most;
    }

    /// The form in which a time is written: digits, a point and digits, e with a sign and digits.
    static bool is_time(const std::string& text)
    {
        std::size_t place = 0;
        bool right        = digits(text, place, 20);
        if(right && place < text.size() && text[place] == '.')
            right = digits(text, ++place, 20);
        if(right && place < text.size() && text[place] == 'e')
            right = ++place < text.size() && (text[place] == '+' || text[place] == '-') && digits(text, ++place, 3);
        return right && place == text.size();
    }

    /// Printable ASCII without spaces at its ends.
    static bool is_text(const std::string& text)
    {
        for(const char letter : text)
            if(letter < ' ' || letter > '~')
                return false;
        return !text.empty() && text.front() != ' ' && text.back() != ' ';
    }

    /// A whole number without sign or leading zeros.
    template <class Number>
    static bool number(const std::string& text, Number& value)
    {
        std::size_t place = 0;
        if(!digits(text, place, 10) || (text[0] == '0' && text.size() > 1))
            return false;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        return error == std::errc() && end == text.data() + text.size();
    }

    static std::string one_line(std::string_view text)
    {
        std::string line;
        for(const char letter : text)
            if(letter > ' ' && letter <= '~')
                line += letter;
            else if(!line.empty() && line.back() != ' ')
                line += ' ';
        while(!line.empty() && line.back() == ' ')
            line.pop_back();
        return line;
    }

    /// A whole new file in the place of the old one.
    bool write(const std::filesystem::path& folder) const
    {
        std::string name = (folder / ("." + path_.filename().string() + ".XXXXXX.tmp")).string();
        const int made   = ::mkstemps(name.data(), 4);
        if(made < 0)
            return false;
        ::fchmod(made, 0644);
        std::ostringstream text;
        text.imbue(std::locale::classic());
        text.precision(9);
        text << header << '\n';
        for(const TunedChoice& choice : choices_)
        {
            for(const std::int32_t dim : choice.dims)
                text << dim << '\t';
            text << choice.candidate << '\t' << choice.time_ms << '\t' << choice.timed << '\t' << choice.device << '\t' << choice.device_kind
                 << '\n';
        }
        const std::string content = text.str();
        bool whole                = true;
        for(std::size_t done = 0; whole && done < content.size();)
        {
            const ssize_t wrote = ::write(made, content.data() + done, content.size() - done);
            whole               = wrote > 0 || (wrote < 0 && errno == EINTR);
            done += wrote > 0 ? static_cast<std::size_t>(wrote) : 0;
        }
        whole = ::fsync(made) == 0 && whole;
        whole = ::close(made) == 0 && whole && std::rename(name.c_str(), path_.c_str()) == 0;
        if(!whole)
            ::unlink(name.c_str());
        return whole;
    }

    std::filesystem::path path_;
    std::vector<TunedChoice> choices_;
    mutable std::mutex mutex_;
    bool foreign_ = false;
    bool warned_  = false;
};

} // namespace tileseer
