# cmake --install: headers, the archive, the command, and how compilers find them (CMake, pkg-config).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# What the archive needs at link time: a static library does not say it itself. gcc finds its libgomp
# by name, whatever its version; clang's libomp has its place.
set(private_libs ${ZMQ_LDFLAGS} ${MSGPACK_LDFLAGS} ${UUID_LDFLAGS} ${XXHASH_LDFLAGS}
    ${JANSSON_LDFLAGS})
set(by_path)
if(dnnl_major EQUAL 2)
    list(APPEND by_path ${DNNL_LIBRARY})
endif()
foreach(name ${OpenMP_C_LIB_NAMES})
    if(name MATCHES "^(gomp|pthread)$")
        list(APPEND private_libs -l${name})
    else()
        list(APPEND by_path ${OpenMP_${name}_LIBRARY})
    endif()
endforeach()
foreach(path ${by_path})
    get_filename_component(folder ${path} DIRECTORY)
    get_filename_component(name ${path} NAME_WE)
    string(REGEX REPLACE "^lib" "-l" name ${name})
    list(APPEND private_libs -L${folder} ${name})
endforeach()
list(APPEND private_libs -lm -pthread)
if(TROUPE_SANITIZE)
    list(APPEND private_libs -fsanitize=${TROUPE_SANITIZE})
endif()
list(REMOVE_DUPLICATES private_libs)
list(FILTER private_libs EXCLUDE REGEX "^-L(/usr)?/lib(/${CMAKE_LIBRARY_ARCHITECTURE})?$")
list(JOIN private_libs " " private_libs)

# Found from where they lie, so that the whole may be moved.
file(RELATIVE_PATH up_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" up_to_prefix "${up_to_prefix}")
set(generated ${CMAKE_BINARY_DIR}/install)
configure_file(include/install/troupe.pc.in ${generated}/troupe.pc @ONLY)
configure_file(include/install/troupe-config.cmake.in ${generated}/troupe-config.cmake @ONLY)
write_basic_package_version_file(${generated}/troupe-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)

install(DIRECTORY include/troupe DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS troupe ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS troupe_command step_bench RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES ${generated}/troupe.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${generated}/troupe-config.cmake ${generated}/troupe-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/troupe)
install(FILES README.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.[ch]"
        PATTERN README.md)

# The command knows its own words.
install(CODE "
    execute_process(COMMAND \"$<TARGET_FILE:troupe_command>\" completion bash
                    OUTPUT_FILE \"${generated}/troupe\" RESULT_VARIABLE failed ERROR_QUIET)
    if(NOT failed)
        file(INSTALL \"${generated}/troupe\" DESTINATION
             \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/bash-completion/completions\")
    endif()")
