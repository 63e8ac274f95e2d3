def write(*a):
    print("page later")
