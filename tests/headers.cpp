// The headers that every test uses, prepared once (CMakeLists.txt beside this).
